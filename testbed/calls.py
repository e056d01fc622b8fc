"""Calls as data: callers that ask a limiter's daemon over HTTP before each of their calls. Pure.

Each caller asks at a constant rate, whatever it is answered. A call costs its size, in bytes, so
that one limit holds the calls at one limiter and the packets at others (docs/requests.md).

Units: rates bytes/s, sizes bytes, times nanoseconds from the start of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from drld.config.fields import Rate
from testbed.fields import Name, Size, Table

NAMESPACE = "calls"
ADDRESS = "127.0.0.1:8099"
"""The address at which the daemon answers, in its own namespace."""
PATH = "/v1/check"
_NS_PER_S = 1_000_000_000


class CallsTable(Table):
    """`[calls]`: callers that are alike, at a limiter without other traffic."""

    limiter: Name
    count: Annotated[int, Field(ge=1, le=100)]
    rate: Rate
    """The rate at which each caller asks for bytes."""
    size: Annotated[Size, Field(ge=1)]
    """Cost of a call."""


def request_tables(limit: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of a daemon that answers calls under this limit, which others have on packets."""
    kept = ("id", "name", "rate", "burst", "allocator", "ewma", "shares", "interval")
    own = {key: limit[key] for key in kept if key in limit}
    return {
        "requests": {"listen": ADDRESS},
        "limit": [{**own, "unit": "bytes", "match": {"namespace": NAMESPACE}}],
    }


def due(table: CallsTable, begin_ns: int, end_ns: int) -> list[int]:
    """The callers whose calls are due in a span of time, one for each call.

    The callers of a group begin evenly spread over their interval.
    """
    every_ns = table.size * _NS_PER_S // table.rate
    found = []
    for caller in range(table.count):
        first_ns = every_ns * caller // table.count
        before, until = (-(-(at_ns - first_ns) // every_ns) for at_ns in (begin_ns, end_ns))
        found += [caller] * (max(until, 0) - max(before, 0))
    return found


def summed(steps: Sequence[int], samples: int) -> list[int]:
    """Bytes up to each sample of the run's counters, of those of each step between two.

    The first two samples are before the run and at its start.
    """
    sums = [0, 0]
    for size in steps:
        sums.append(sums[-1] + size)
    return sums[:samples] + [sums[-1]] * (samples - len(sums))
