"""The time that nfqueue's Python takes for a packet: the whole verdict, and its parts.

Processor time of this process alone, so that neither the kernel nor the queue's library is in it.
The packets are plain UDP of one flow, as in the benchmark `pps`.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from functools import partial
from random import Random

from drld.allocators import ALLOCATORS
from drld.capture.gate import Gate
from drld.capture.packet import outline, parse
from drld.capture.spec import Match
from drld.model import NS_PER_S, Enforcement
from drld.police.direction import Direction
from drld.police.policer import Excess, Policer
from drld.policy import Policy
from drld.spec import LimitSpec
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome, Row

_METRIC = ("processor time", "ns a packet")
_CALLS = 20_000
"""Calls a sample: some 20 ms, a thousand times what a look at the clock takes."""
_LENGTH, _NOW_NS = 64, 5
_ENFORCEMENTS = {
    "a limit with a bucket": Enforcement(fill_rate=10**9, depth=10**8),
    "a limit with flow buckets": Enforcement(
        fill_rate=10**9, depth=10**8, flow_rate=10**8, flow_depth=10**7, reserve=10**6
    ),
}


async def measure(setting: Setting) -> Outcome:
    """The parts of a verdict in turn, round by round."""
    rows = []
    for group, enforcement in _ENFORCEMENTS.items():
        parts = _parts(enforcement)
        seen: dict[str, list[float]] = {name: [] for name in parts}
        rounds = setting.choose(51, 5)
        for number in range(rounds):
            setting.progress.step(f"{group}, round {number + 1} of {rounds}")
            call_ns = _timed(_nothing)
            for name, part in parts.items():
                seen[name].append(_timed(part) - call_ns)
        rows += [Row(group, name, *_METRIC, values) for name, values in seen.items()]
    return Outcome(rows, _METRIC[0])


def _parts(enforcement: Enforcement) -> dict[str, Callable[[], object]]:
    policy = Policy(
        id=1, name="all", rate=10**9, burst=10**8, allocator="static",
        parameters=ALLOCATORS["static"].Parameters(), interval_ns=NS_PER_S // 20, ewma=0.1,
        excess=Excess.DROP,
    )  # fmt: skip
    limit = LimitSpec(policy, Match(interface="eth1", direction=Direction.OUT))
    data = _udp()
    rng = Random(1)
    gate = Gate(rng)
    gate.replace([(limit, enforcement)], 0)
    policer = Policer(policy, enforcement, 0)
    flow = parse(data).flow
    return {
        "the whole verdict": partial(gate.judge, data, "eth1", Direction.OUT, 0, _NOW_NS),
        "of it: which packet it is (outline)": partial(outline, data),
        "of it: counters, flow sample, buckets (police)": partial(
            policer.police, flow, _LENGTH, _NOW_NS, rng
        ),
    }


def _udp() -> bytes:
    """A plain IPv4 packet from port 1024 to port 53; nothing here looks at checksums."""
    header = struct.pack("!BBHHHBBH", 0x45, 0, _LENGTH, 7, 0, 64, 17, 0)
    ends = bytes([10, 0, 0, 1, 10, 9, 2, 1])
    return (header + ends + struct.pack("!HHHH", 1024, 53, _LENGTH - 20, 0)).ljust(_LENGTH, b"\0")


def _timed(call: Callable[[], object]) -> float:
    began_ns = time.process_time_ns()
    for _ in range(_CALLS):
        call()
    return (time.process_time_ns() - began_ns) / _CALLS


def _nothing() -> None:
    pass
