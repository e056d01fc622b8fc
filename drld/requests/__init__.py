"""Requests: limits on calls, keyed by who calls."""
