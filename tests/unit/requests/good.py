"""A good configuration of a daemon that answers requests."""

from __future__ import annotations

from functools import partial

from tests.replaced import replaced

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

changed = partial(replaced, GOOD)
"""The good configuration with the first occurrence of each old text replaced by the new one."""
