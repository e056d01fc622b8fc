"""Made-up inputs of `fair`; a test names only the fields that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from drld.allocators.base import Allocation, InForce
from drld.allocators.fair import Fair, FairParameters
from drld.estimate.flows import NEVER_NS, FlowState
from drld.model import NS_PER_S, Demand, GlobalView

from .factories import MBIT, TICK_NS

LIMIT = 10.0 * MBIT


def sampled(rate: float, *, hit: bool = False, age_ns: int = 10 * NS_PER_S) -> FlowState:
    """A flow that sends so many bytes/s; `hit`: some of it was refused in the last interval."""
    flow = FlowState()
    flow.fast = flow.last = flow.rate_sum = flow.average = flow.rate = rate
    flow.weight = 1.0
    flow.age_ns = age_ns
    flow.unhit_ns = 0 if hit else NEVER_NS
    return flow


def demand(*sample: FlowState, rest: float = 0.0, forwarded: int = 0, **changes: Any) -> Demand:
    """The demand of these flows, and of `rest` bytes/s of other flows."""
    rate = sum(flow.fast for flow in sample) + rest
    values: dict[str, Any] = {
        "rate": rate,
        "instant_rate": rate,
        "flow_rate": None,
        "long_rate": rate,
        "flows": len(sample),
        "drop_ratio": 0.0,
        "first": False,
        "idle": not rate,
        "forwarded_tokens": forwarded,
        "sample": sample,
        "rest": rest,
    }
    return Demand(**(values | changes))


def greedy(count: int, limit: float = LIMIT) -> list[FlowState]:
    """Flows that want all they can get."""
    return [sampled(limit, hit=True) for _ in range(count)]


def in_force(limit: float = LIMIT, **changes: Any) -> InForce:
    """One of four limiters with equal shares; a burst of 60 ms."""
    values: dict[str, Any] = {
        "rate": limit,
        "burst": 0.06 * limit,
        "static_rate": limit / 4,
        "static_burst": 0.06 * limit / 4,
        "interval_ns": TICK_NS,
    }
    return InForce(**(values | changes))


def believed(
    remote: float,
    told: float = 0.0,
    news_ns: int = 4 * TICK_NS,
    least_remote: float | None = None,
) -> GlobalView:
    """The view of a limiter with a peer, whose weight is constant if `least_remote` is None.

    Args:
        remote: weight of the peer.
        told: the least value that the limiter told within the age of news.
        news_ns: the age of news, ns.
        least_remote: the least weight of the peer within that time.
    """
    least = remote if least_remote is None else least_remote
    return GlobalView(
        remote, frozenset({"other"}), 0, told=told, least_remote=least, news_ns=news_ns
    )


def make(**parameters: float) -> Fair:
    return Fair(FairParameters(**parameters))


def settled(
    flows: Sequence[FlowState],
    remote: float,
    *,
    limit: InForce | None = None,
    interval_ns: int = TICK_NS,
    ticks: int = 100,
    **changes: Any,
) -> Allocation:
    """The final allocation of a limiter whose flows go on like that, and forward all they may."""
    fair = make()
    limit = limit or in_force()
    told, forwarded = 0.0, 0
    for _ in range(ticks):
        wanted = demand(*flows, forwarded=forwarded, **changes)
        found = fair.allocate(wanted, believed(remote, told), limit, interval_ns)
        told = found.value
        passing = min(wanted.instant_rate, found.enforcement.fill_rate)
        forwarded = round(passing * interval_ns / NS_PER_S)
    return found
