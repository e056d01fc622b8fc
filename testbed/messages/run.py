"""One run of a case: from its definition to its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from drld.messages.envelope import envelope
from drld.model import NS_PER_S
from testbed.harness.case import case_of
from testbed.messages.arrivals import Burst, arrivals
from testbed.messages.broker import ITEM, carry
from testbed.messages.case import Case

_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def carry_out(definition: Mapping[str, Any], name: str, repetition: int) -> dict[str, Any]:
    """Carry out one run with `name` brokers; the same arguments give the same record.

    All numbers of brokers see the same messages. The envelope is profiled on other messages than
    those that are measured, as an operator has to.
    """
    case, brokers = case_of(Case, definition), int(name)
    burst = case.burst or _profiled(case, repetition)
    warm_ns = int(case.warm_s * NS_PER_S)
    rng = Random(f"messages {repetition}")
    sent = case.sources.bursts(rng, warm_ns + int(case.seconds * NS_PER_S))
    access, total = [], []
    rate, depth = int(case.rate * ITEM) // brokers, burst * ITEM // brokers
    for part in split(sent, brokers, case.publishers, rng):
        delays = carry(part, rate, depth)
        first = sum(at_ns < warm_ns for at_ns in delays.arrived)
        access += delays.access[first:]
        total += delays.total[first:]
    return {
        "allocator": name, "repetition": repetition, "datapath": "virtual time",
        "burst": burst, "messages": len(access), "waited": sum(map(bool, access)),
        "access": summary(access), "latency": summary(total),
    }  # fmt: skip


def split(sent: Sequence[Burst], brokers: int, publishers: int, rng: Random) -> list[list[Burst]]:
    """Give each broker equally many publishers, chosen at random."""
    order = list(range(publishers))
    rng.shuffle(order)
    broker_of = {publisher: place % brokers for place, publisher in enumerate(order)}
    parts: list[list[Burst]] = [[] for _ in range(brokers)]
    for burst in sent:
        parts[broker_of[burst.publisher]].append(burst)
    return parts


def _profiled(case: Case, repetition: int) -> int:
    duration_ns = int(case.seconds * NS_PER_S)
    trace = arrivals(case.sources.bursts(Random(f"profile {repetition}"), duration_ns))
    return envelope(trace, duration_ns).burst


def summary(delays_ns: list[int]) -> dict[str, float]:
    """Mean and quantiles, ms."""
    delays_ns.sort()
    found = {name: delays_ns[int(at * len(delays_ns))] / 1e6 for name, at in _QUANTILES.items()}
    return {"mean": sum(delays_ns) / len(delays_ns) / 1e6, **found}
