"""The flow table of the BPF program, whose sets have four places each: a flow has two of the sets.

A limit's flows are all in the table while there are few of them, whatever their ids are. Elephants
come into it, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

import pytest

from drld.capture.flow_identity import flow_identity, sets_of
from drld.capture.kernel.datapath import limiter_programs
from drld.capture.packet import parse
from drld.model import Enforcement, FlowId

from ..elephants import ELEPHANTS, LENGTH, TICKS_A_SECOND, elephants_sampled, traffic
from ..factories import limit_spec
from .bench import ETHERNET, SEED, TEST_FLAGS, Bench

_HEAD = ETHERNET + b"\x08\x00"
_FIXED = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 64, 17, 0)
SIZE = 28


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    bench = Bench(limiter_programs(TEST_FLAGS), [limit_spec(id=1)])
    yield bench
    bench.close()


def packet(number: int) -> bytes:
    """A packet of a flow of its own."""
    source = (10 << 24 | number).to_bytes(4, "big")
    return _FIXED + source + bytes([10, 255, 0, 1]) + struct.pack("!HHHH", 1, 2, 8, 0)


def identity(number: int) -> int:
    return flow_identity(parse(packet(number)).flow, SEED)


def sets() -> dict[int, list[int]]:
    """Numbers of flows by the first of their sets."""
    found: dict[int, list[int]] = {}
    for number in range(1000):
        found.setdefault(sets_of(identity(number))[0], []).append(number)
    return found


def sampled(bench: Bench, elephants: list[int], mice: int, share: float, seconds: int) -> list[int]:
    """How many of the elephants, by their numbers, are in the table after each tick."""
    bench.reset([Enforcement()], 0)
    before: dict[int, int] = {}
    numbers = elephants + list(range(1000, 1000 + mice))

    def count(arrived: list[int]) -> dict[FlowId, int]:
        for number in arrived:
            bench.packet(_HEAD + packet(numbers[number]))
        counted: dict[FlowId, int] = {}
        for flow, (place, size, _, _) in bench.flows(0).items():
            counted[flow] = (size - before.get(place, 0)) // SIZE * LENGTH
            before[place] = size
        return counted

    def evict(leaving: list[FlowId]) -> None:
        for flow, state in bench.flows(0).items():
            if flow in leaving:
                bench.state.evict(0, state.place)

    packets = traffic(Random(1), mice, share, seconds * TICKS_A_SECOND)
    return elephants_sampled(packets, count, evict, [identity(number) for number in elephants])


@pytest.mark.parametrize("mice", [10_000, 100_000])
def test_elephants_come_into_the_table_and_stay(bench: Bench, mice: int) -> None:
    """Three in each of six sets, and two more: more crowded than most."""
    crowded = [number for _, members in sorted(sets().items())[:7] for number in members[:3]]
    seen = sampled(bench, crowded[:ELEPHANTS], mice, 0.5, 10)
    assert set(seen[5 * TICKS_A_SECOND :]) == {ELEPHANTS}


def test_elephants_that_crowd_one_set_are_in_the_table(bench: Bench) -> None:
    """Six that have the same first set."""
    members = list(sets().values())
    elephants = members[0][:6] + [number for others in members[1:8] for number in others[:2]]
    seen = sampled(bench, elephants, 10_000, 0.5, 8)
    assert set(seen[5 * TICKS_A_SECOND :]) == {ELEPHANTS}


def outside(bench: Bench, flows: int, draws: int, seed: int) -> int:
    """The number of `draws` limits with `flows` random flows in which a flow finds no place."""
    rng = Random(seed)
    crowded = 0
    for _ in range(draws):
        bench.reset([Enforcement()], 0)
        for number in rng.sample(range(1 << 24), flows):
            bench.packet(_HEAD + packet(number))
        crowded += len(bench.flows(0)) < flows
    return crowded


@pytest.mark.parametrize(("flows", "most"), [(8, 0), (16, 0), (24, 0), (32, 5), (40, 50)])
def test_all_flows_of_a_limit_have_a_place(bench: Bench, flows: int, most: int) -> None:
    """With sets chosen at random, all flows have a place in 99.96 % of limits with 32 flows and in
    98.5 % with 40. With one set for each flow it would be 40 % and 10 %. `most` is more than a
    binomial distribution exceeds in one of a thousand cases.
    """
    assert outside(bench, flows, 2000 if flows > 24 else 500, seed=flows) <= most
