"""A contestant a file."""
