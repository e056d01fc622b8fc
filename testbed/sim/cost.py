"""The cost of one limiter: processor time of a tick, and memory.

It is measured at some limiters of the fleet, the witnesses. They have drld's own membership, with a
record of each peer, even if the others have a cheap one (`testbed.sim.known`). So they work like a
daemon. The figure leaves out a daemon's interpreter and datapath, and the encoding and sending of
datagrams.
"""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Collection, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from testbed.sim.host import Host

WITNESSES = 8
_OF_ALL = (type, ModuleType, FunctionType, BuiltinFunctionType)
"""Types of objects that belong to the program and not to a limiter."""


def costs(witnesses: Sequence[Host], shared: Collection[object]) -> dict[str, float]:
    """The witnesses' costs: `costs` of a record (docs/testbed.md).

    `shared`: common objects, which do not count.
    """
    ticks_us = sorted(spent / 1000 for host in witnesses for spent in host.tick_ns or ())
    own = [footprint(host.engine, (*shared, host.datapath)) for host in witnesses]
    links = [len(host.managed.limiter.fabric.links) for host in witnesses]
    return {
        "limiters": len(witnesses),
        "tick_us": statistics.median(ticks_us),
        "tick_us_p90": ticks_us[len(ticks_us) * 9 // 10],
        "bytes": statistics.fmean(own),
        "links": statistics.fmean(links),
    }


def footprint(root: object, shared: Collection[object]) -> int:
    """Bytes of all objects reachable from an object, without the shared ones."""
    seen = {id(item) for item in shared}
    found: list[Any] = [root]
    total = 0
    while found:
        item = found.pop()
        if id(item) in seen or isinstance(item, _OF_ALL):
            continue
        seen.add(id(item))
        total += sys.getsizeof(item)
        found += gc.get_referents(item)
    return total
