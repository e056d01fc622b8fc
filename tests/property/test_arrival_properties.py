"""A conforming stream loses nothing, however late it is read (short of a daemon that stands still)
and whenever records change."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from drld.model import NS_PER_S, Enforcement
from drld.police.arrival_time import SLACK_NS, ArrivalTimes
from drld.police.token_bucket import TokenBucket

US, MS = 1000, 1_000_000
START_NS = 50 * NS_PER_S
WALL_NS = 1_800_000_000 * NS_PER_S
RECORD = Enforcement(fill_rate=125_000, depth=15_000)


@dataclass
class Clock:
    now_ns: int = START_NS

    def monotonic(self) -> int:
        return self.now_ns

    def wall(self) -> int:
        return self.now_ns + WALL_NS


def conforming(packets: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """(time, length) of the packets, of (µs after the one before, length), that a bucket passes."""
    bucket = TokenBucket(RECORD, START_NS)
    now_ns = START_NS
    passed = []
    for gap_us, length in packets:
        now_ns += gap_us * US
        bucket.settle(now_ns)
        if bucket.conforms(length):
            bucket.charge(length)
            passed.append((now_ns, length))
    return passed


gaps = st.one_of(st.integers(0, 100), st.integers(0, 50_000))
streams = st.lists(st.tuples(gaps, st.integers(40, 1500)), max_size=120).map(conforming)
readings = st.lists(
    st.tuples(st.integers(0, 200 * MS), st.integers(0, 40), st.booleans()), max_size=30
)
"""Time until the next, packets read at once at most, and whether a tick comes first."""


@given(stream=streams, readings=readings, wall=st.booleans())
def test_a_conforming_stream_passes_whole(
    stream: list[tuple[int, int]], readings: list[tuple[int, int, bool]], wall: bool
) -> None:
    clock = Clock()
    times = ArrivalTimes(clock.monotonic, clock.wall)
    bucket = TokenBucket(RECORD, START_NS)
    coming, waiting = deque(stream), deque[tuple[int, int]]()
    last = ((SLACK_NS, len(stream), True),) * 100
    for delay_ns, turn, tick in (*readings, *last):
        clock.now_ns += delay_ns
        while coming and coming[0][0] <= clock.now_ns:
            waiting.append(coming.popleft())
        if tick:
            if not waiting:
                times.emptied(clock.now_ns)
            bucket.program(RECORD, min(times.settled_ns(), clock.now_ns))
        began_ns = clock.now_ns
        for _ in range(min(turn, len(waiting))):
            arrived_ns, length = waiting.popleft()
            stamp_us = (arrived_ns + (WALL_NS if wall else 0)) // US
            bucket.settle(times.arrival_ns(stamp_us / 1e6))
            assert bucket.conforms(length)
            bucket.charge(length)
            clock.now_ns += 20 * US
        if not waiting:
            times.emptied(began_ns)
    assert not coming
    assert (times.kernel if wall else times.ebpf) == len(stream)


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 100 * MS),
            st.one_of(
                st.just(0),
                st.integers(0, 2**62 // US),
                st.integers((START_NS - 2 * NS_PER_S) // US, (START_NS + 2 * NS_PER_S) // US),
            ),
            st.booleans(),
        )
    )
)
def test_no_stamp_is_taken_for_more_than_it_can_be(steps: list[tuple[int, int, bool]]) -> None:
    clock = Clock()
    times = ArrivalTimes(clock.monotonic, clock.wall)
    oldest_ns = clock.now_ns - SLACK_NS
    for delay_ns, stamp_us, empty in steps:
        clock.now_ns += delay_ns
        assert oldest_ns <= times.arrival_ns(stamp_us / 1e6) <= clock.now_ns
        assert times.settled_ns() <= clock.now_ns
        if empty:
            times.emptied(clock.now_ns)
            oldest_ns = clock.now_ns - SLACK_NS
    assert times.ebpf + times.kernel + times.read == len(steps)
