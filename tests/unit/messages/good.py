"""A good configuration of a daemon in front of two brokers."""

from __future__ import annotations

from functools import partial

from tests.replaced import replaced

GOOD = """
[limiter]
name = "lim1"
listen = "127.0.0.1:7946"

[[broker]]
name = "mqtt"
protocol = "mqtt"
listen = "127.0.0.1:1883"
server = "127.0.0.1:1884"

[[broker]]
name = "nats"
protocol = "nats"
listen = ["127.0.0.1:4222", "/run/drld/nats.sock"]
server = "/run/nats.sock"

[[limit]]
id = 1
name = "city"
unit = "messages"
rate = "11k/s"
burst = "26msg"
match = { broker = "mqtt", topic = "city/#" }
"""

changed = partial(replaced, GOOD)
"""The good configuration with the first occurrence of each old text replaced by the new one."""
