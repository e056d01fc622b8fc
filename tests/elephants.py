"""A few fast flows among very many slow ones, for tests of the flow sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random

from drld.estimate.flows import FlowRates
from drld.model import FlowId

from .factories import TICK_NS

ELEPHANTS = 20
PACKETS = 400
"""Packets of 1,500 bytes in a tick: 96 Mbit/s."""
LENGTH = 1500
TICKS_A_SECOND = 10**9 // TICK_NS


def traffic(rng: Random, mice: int, share: float, ticks: int) -> Iterator[list[int]]:
    """Numbers of the flows whose packets arrive, tick by tick; elephants come first.

    Args:
        rng: decides whose packet is next.
        mice: how many slow flows there are.
        share: of the elephants together in the packets.
        ticks: how many.
    """
    for _ in range(ticks):
        yield [
            rng.randrange(ELEPHANTS) if rng.random() < share else ELEPHANTS + rng.randrange(mice)
            for _ in range(PACKETS)
        ]


def elephants_sampled(
    packets: Iterable[list[int]],
    count: Callable[[list[int]], Mapping[FlowId, int]],
    evict: Callable[[list[FlowId]], None],
    elephants: Iterable[FlowId],
) -> list[int]:
    """How many elephants are in the sample at the end of each tick.

    Args:
        packets: those of each tick.
        count: has a datapath count packets; bytes of the sampled flows.
        evict: has it drop flows.
        elephants: what the datapath calls them.
    """
    rates = FlowRates()
    seen = []
    for numbers in packets:
        counted = count(numbers)
        leaving = rates.update(counted, len(numbers) * LENGTH, TICK_NS)
        evict(leaving)
        seen.append(len((counted.keys() - set(leaving)) & set(elephants)))
    return seen
