"""What one limiter costs: processor time of a tick, and memory.

Measured at some limiters of the fleet, the witnesses. They have drld's own membership, with a
record of each peer, also where the others do without (`testbed.sim.known`), so that they do and
know what a daemon would. What a daemon has besides is not in it: an interpreter, a datapath, the
bytes and tags of its datagrams and the calls to send them.
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
"""Objects of these types belong to the program and not to a limiter."""


def costs(witnesses: Sequence[Host], shared: Collection[object]) -> dict[str, float]:
    """What the witnesses cost: `costs` of a record (docs/testbed.md).

    `shared` are the objects that they have in common, and that do not count.
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
    """Bytes of everything that an object leads to, but for what is shared."""
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
