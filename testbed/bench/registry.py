"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from testbed.bench import (
    control,
    cost,
    fleet,
    flows,
    forward,
    gso,
    hostile,
    latency,
    limits,
    pps,
    topics,
)
from testbed.bench.hop import measure as hop
from testbed.bench.lanes import Setting
from testbed.bench.report import HOP, PAGE, REQUESTS
from testbed.bench.requests import contest, memory, ticks
from testbed.bench.rls import measure as rls
from testbed.bench.summary import Outcome
from testbed.harness.page import Page


class Benchmark(NamedTuple):
    """A benchmark by its name, and the page of its result."""

    title: str
    measure: Callable[[Setting], Awaitable[Outcome]]
    page: Page = PAGE
    """The page of results/ with the benchmark's section."""


BENCHMARKS: Mapping[str, Benchmark] = {
    "forward": Benchmark("TCP through a limit that never binds", forward.measure),
    "latency": Benchmark("latency that a limiter adds", latency.measure),
    "cost": Benchmark("the cost of a packet in the kernel datapath", cost.measure),
    "limits": Benchmark("the cost of a packet under many limits", limits.measure),
    "topics": Benchmark("the cost of a message under many limits", topics.measure, HOP),
    "pps": Benchmark("smallest packets per second", pps.measure),
    "control": Benchmark("the cost of a daemon", control.measure),
    "fleet": Benchmark("members and limits of a fleet come and go", fleet.measure),
    "flows": Benchmark("5,000 TCP flows through two limiters", flows.measure),
    "hostile": Benchmark("the cost of a hostile gossip datagram", hostile.measure),
    "requests": Benchmark("a decision on a request, beside Redis", contest.measure, REQUESTS),
    "requests-memory": Benchmark("the memory of keys", memory.measure, REQUESTS),
    "requests-ticks": Benchmark("packet ticks beside requests", ticks.measure, REQUESTS),
    "rls": Benchmark("a call of Envoy's rate limit service", rls.measure, REQUESTS),
    "hop": Benchmark("a hop through a proxy before a broker", hop.measure, HOP),
    "gso": Benchmark("super-packets and small buckets, 10 Mbit/s", gso.measure),
}
"""The benchmarks in the order in which they run."""
