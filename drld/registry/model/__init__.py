"""The registry as plain values: its keys, its state, and the configuration made of it."""
