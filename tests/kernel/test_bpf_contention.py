"""Several CPUs charge one limit at once: no lock, and yet nothing is lost or given away."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from drld.capture.kernel.datapath import limiter_programs
from drld.ebpf.bpf import Code
from drld.model import NS_PER_S, Enforcement

from ..factories import limit_spec
from .bench import ETHERNET, Bench

LENGTH = 1500
FRAME = ETHERNET + b"\x08\x00" + bytes.fromhex(
    "450005dc 00004000 40110000 0a000001 0a000002 00010002 05c80000"
).ljust(LENGTH, b"\0")  # fmt: skip
PACKETS = 200_000
"""Packets of each CPU: some ten milliseconds of them, and more than the bucket holds."""


@pytest.fixture(scope="session")
def code() -> Mapping[str, Code]:
    return limiter_programs()


@pytest.fixture
def bench(code: Mapping[str, Code]) -> Iterator[Bench]:
    bench = Bench(code, [limit_spec(id=1)])
    yield bench
    bench.close()


def charge_at_once(bench: Bench, enforcement: Enforcement) -> tuple[int, int]:
    """Send `PACKETS` on every CPU; how many those were, and when the bucket was full."""
    cpus = sorted(os.sched_getaffinity(0))
    begun: list[int] = []

    def begin() -> None:
        begun.append(time.monotonic_ns())
        bench.reset([enforcement], begun[0])

    start = threading.Barrier(len(cpus), begin)

    def charge(cpu: int) -> None:
        # On one CPU they would interrupt each other within a packet, which the kernel's own do not.
        os.sched_setaffinity(0, {cpu})
        start.wait()
        bench.program.run(FRAME, repeat=PACKETS)

    threads = [threading.Thread(target=charge, args=(cpu,)) for cpu in cpus]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(cpus), begun[0]


def test_cpus_that_refuse_a_flow_at_once(bench: Bench) -> None:
    """No hit is lost, and the limit's bucket bounds them, whatever the flow's bucket says."""
    depth = 50_000 * LENGTH
    charge_at_once(
        bench,
        Enforcement(depth=depth, flow_rate=1, flow_depth=LENGTH * 1000, reserve=depth),
    )
    counted = bench.state.counts(0)
    (flow,) = bench.flows(0).values()
    assert flow.hits == counted.dropped_bytes > 0
    # The 980th packet on a lone CPU meets 49,021 packets' tokens, and leaves 49,000.
    assert 980 * LENGTH <= counted.forwarded_bytes <= depth
    assert flow.due_ns > 0


@pytest.mark.parametrize("rate", [0, 10**9])
def test_cpus_that_charge_at_once(bench: Bench, rate: int) -> None:
    # So deep that it does not run full while the CPUs have other things to do.
    depth = 50_000 * LENGTH
    cpus, begin_ns = charge_at_once(bench, Enforcement(fill_rate=rate, depth=depth))
    sent = cpus * PACKETS
    counted = bench.state.counts(0)
    forwarded, dropped = counted.forwarded_packets, counted.dropped_packets
    forwarded_bytes, dropped_bytes = counted.forwarded_bytes, counted.dropped_bytes
    assert (forwarded + dropped, counted.refused_packets) == (sent, 0)
    assert (forwarded_bytes, dropped_bytes) == (forwarded * LENGTH, dropped * LENGTH)
    # The flow sample counts what arrived.
    assert sum(bench.state.flows(0)[1::2]) == sent * LENGTH
    # Between a packet's check and its charge each other CPU may charge one.
    tokens, until_ns = bench.tokens(0)
    filled = rate * (until_ns - begin_ns) // NS_PER_S
    assert depth - LENGTH < forwarded_bytes <= depth + filled + (cpus - 1) * LENGTH
    # Every charge is there, and no more came in than the rate gave.
    assert depth - forwarded_bytes <= tokens / NS_PER_S <= depth + filled - forwarded_bytes + 1
