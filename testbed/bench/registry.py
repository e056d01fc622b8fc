"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from testbed.bench import forward, latency, pps
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome


class Benchmark(NamedTuple):
    """One of them."""

    title: str
    measure: Callable[[Setting], Awaitable[Outcome]]


BENCHMARKS: Mapping[str, Benchmark] = {
    "forward": Benchmark("TCP through a limit that never binds", forward.measure),
    "latency": Benchmark("what a packet's way takes longer", latency.measure),
    "pps": Benchmark("smallest packets", pps.measure),
}
"""In the order in which they run."""
