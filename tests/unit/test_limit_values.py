"""The history and the log show each key of a limit (`drld.limit_values`)."""

from __future__ import annotations

import pytest

from drld import config
from drld.config.plane_tables import PlaneTables, planes
from drld.limit_values import limit_values

NOT_SHOWN = {
    "id": "a change is compared by it",
    "unit": "the rate shows it",
}
"""The keys that the history does not show, with the reason."""
BESIDE = """
[limiter]
name = "a"
listen = "127.0.0.1:7946"
[requests]
listen = ["127.0.0.1:8099"]
[[broker]]
name = "mq"
protocol = "mqtt"
listen = ["127.0.0.1:1883"]
server = "127.0.0.1:1884"
"""
LIMIT = """
[[limit]]
id = 1
name = "x"
on_failure = "closed"
"""
DIVIDED = """shares = { a = 1.0 }
weights = { a = 2.0 }
"""
"""The keys of a limit whose rate is divided among the limiters."""
LIMITS = {
    "packets": ['rate = "10mbit"\nflow = "source"\nmatch = { out = "lo" }'],
    "requests": [
        'rate = "100/s"\nmatch = { namespace = "n" }',
        'rate = "100/s"\nburst = 200\nmatch = { namespace = "n", per = ["user"] }\n'
        'overrides = [{ user = "b", rate = "1/s", burst = 9 }]',
    ],
    "broker": ['rate = "100/s"\nmatch = { broker = ["mq"], topic = "t" }'],
}
"""Limits that together have a value for each key, by the plane's table."""


@pytest.mark.parametrize("plane", planes(), ids=lambda plane: plane.key)
def test_each_key_of_a_limit_is_shown(plane: PlaneTables) -> None:
    shown: set[str] = set()
    for written in LIMITS[plane.key]:
        divided = "" if "per" in written else DIVIDED
        (limit,) = config.parse(BESIDE + LIMIT + divided + written, "f").limits
        shown |= {key.partition(".")[0] for key in limit_values(limit)}
    missing = plane.limit.model_fields.keys() - shown - NOT_SHOWN.keys()
    assert not missing, (
        f"drld/limit_values.py lacks {sorted(missing)}: add them, or name them here with the reason"
    )
