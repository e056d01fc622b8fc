"""The registry as plain values: its keys, what they say, and the configuration they make."""
