"""Unmodified clients of message brokers, as processes of their own."""
