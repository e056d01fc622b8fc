"""Faults on real daemons under load, and measurements of the promises (docs/chaos.md)."""
