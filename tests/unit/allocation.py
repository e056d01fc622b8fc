"""Calls of an allocator at one limiter, whose static share is half of a limit of 10 Mbit/s."""

from typing import Any

from drld.allocators import ALLOCATORS
from drld.allocators.base import Allocation, Allocator, InForce
from drld.model import Demand, GlobalView

from ..factories import MBIT, TICK_NS, demand

LIMIT = InForce(rate=10 * MBIT, burst=75_000, static_rate=5 * MBIT, static_burst=37_500)
IDLE = demand(0, idle=True)


def make(name: str, **parameters: Any) -> Allocator:
    allocator = ALLOCATORS[name]
    return allocator(allocator.Parameters(**parameters))


def allocate(allocator: Allocator, local: Demand, remote: GlobalView, ticks: int = 1) -> Allocation:
    for _ in range(ticks):
        allocation = allocator.allocate(local, remote, LIMIT, TICK_NS)
    return allocation


def local_limit(allocation: Allocation) -> float:
    assert allocation.local_limit is not None
    return allocation.local_limit
