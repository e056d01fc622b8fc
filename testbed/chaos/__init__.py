"""Faults done to real daemons under load: what is promised of them, measured (docs/chaos.md)."""
