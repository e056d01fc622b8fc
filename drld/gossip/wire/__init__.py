"""The messages between limiters, as pure functions and state (docs/wire-format.md)."""
