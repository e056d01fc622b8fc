"""Fabrics compared: fleets that only gossip, under virtual time (docs/gossip.md)."""
