"""A good configuration of a daemon that answers requests."""

from __future__ import annotations

GOOD = """
[limiter]
name = "lim1"
listen = "127.0.0.1:7946"

[requests]
listen = "127.0.0.1:8099"

[[limit]]
id = 1
name = "api"
unit = "requests"
rate = "100/s"
burst = 200
match = { namespace = "api" }
"""


def changed(*changes: tuple[str, str]) -> str:
    """The good configuration with the first occurrence of each text replaced."""
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text
