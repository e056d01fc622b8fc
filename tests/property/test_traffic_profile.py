"""The suggested burst drops nothing of what was seen, and is not much larger than needed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.estimate.traffic_profile import (
    LONGEST_S,
    STEPS,
    TrafficProfile,
    seconds_needed,
    suggest,
)
from drld.model import NS_PER_S, Enforcement
from drld.police.token_bucket import TokenBucket
from drld.units import BYTES

from ..factories import MS

LEAST = 1250
PACKETS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 7, 20, 49, 50, 51, 300, 3000]), st.sampled_from([40, 600, 1500])
    ),
    min_size=1,
    max_size=150,
)
"""Milliseconds since the packet before, and bytes."""
RATES = st.sampled_from([LEAST * 2 ** (place / STEPS) for place in range(0, 12 * STEPS, 5)])


def timed(packets: list[tuple[int, int]]) -> list[tuple[int, int]]:
    now_ns, found = 0, []
    for wait_ms, size in packets:
        now_ns += wait_ms * MS
        found.append((now_ns, size))
    return found


def profiled(
    packets: list[tuple[int, int]], ticks: list[int], *, resting: bool = False
) -> TrafficProfile:
    """Read at intervals of these lengths, ms; a limit at rest is not read while it is idle."""
    profile = TrafficProfile(LEAST, 0)
    rest, at, before_ns = list(packets), 0, 0
    while rest:
        now_ns = before_ns + ticks[at % len(ticks)] * MS
        at += 1
        arrived = 0
        while rest and rest[0][0] < now_ns:
            arrived += rest.pop(0)[1]
        if arrived or not resting:
            profile.add(arrived, now_ns - before_ns, now_ns)
        before_ns = now_ns
    return profile


def needed(packets: list[tuple[int, int]], rate: float) -> float:
    """The largest backlog of a queue that is served at this rate."""
    backlog = most = 0.0
    before_ns = 0
    for now_ns, size in packets:
        backlog = max(backlog - rate * (now_ns - before_ns) / NS_PER_S, 0) + size
        most, before_ns = max(most, backlog), now_ns
    return most


@given(PACKETS, st.lists(st.sampled_from([50, 50, 55, 200]), min_size=1), RATES, st.booleans())
def test_a_burst_covers_the_traffic_and_little_more(
    packets: list[tuple[int, int]], ticks: list[int], rate: float, resting: bool
) -> None:
    listed = timed(packets)
    burst = profiled(listed, ticks, resting=resting).burst_for(rate)
    exact = needed(listed, rate)
    if burst is None:
        assert exact > (LONGEST_S - max(ticks) / 1000) * rate
    else:
        assert exact - 1e-6 <= burst <= exact + rate * 2 * max(ticks) / 1000 + 1e-6


@given(PACKETS, st.sampled_from([0.5, 0.9]), st.sampled_from([50, 500]))
def test_a_suggested_limit_would_have_dropped_nothing(
    packets: list[tuple[int, int]], part: float, tick_ms: int
) -> None:
    listed = timed(packets * 3)
    profile = profiled(listed, [tick_ms])
    found = suggest(profile, part, BYTES)
    assert (found is None) == (profile.seconds < seconds_needed(part))
    if found is None:
        return
    record = Enforcement(fill_rate=found.rate, depth=found.burst)
    bucket = TokenBucket(record, 0)
    for now_ns, size in listed:
        bucket.settle(now_ns)
        assert bucket.conforms(size)
        bucket.charge(size)


@given(
    st.lists(st.integers(1, 20), min_size=10, max_size=60).map(lambda it: [n * 5000 for n in it]),
    st.sampled_from([0.5, 0.8, 0.9]),
)
def test_the_rate_is_the_smallest_for_that_part_of_the_seconds(
    seconds: list[int], part: float
) -> None:
    profile = TrafficProfile(LEAST, 0)
    for at, size in enumerate(seconds):
        for tick in range(20):
            profile.add(size // 20, NS_PER_S // 20, at * NS_PER_S + (tick + 1) * NS_PER_S // 20)
    assert profile.seconds == len(seconds)
    quantile = sorted(seconds)[math.ceil(part * len(seconds)) - 1]
    assert quantile <= profile.rate_for(part) * (1 + 1e-9)
    assert profile.rate_for(part) <= quantile * 2 ** (1 / STEPS) * (1 + 1e-9)


def test_seconds_without_traffic_do_not_count() -> None:
    profile = TrafficProfile(LEAST, 0)
    for at in range(1000):
        profile.add(50_000 if at % 10 == 0 else 0, NS_PER_S, (at + 1) * NS_PER_S)
    assert (profile.seconds, profile.seen_s) == (100, 1000.0)
    found = suggest(profile, 0.99, BYTES)
    assert found is not None
    assert 50_000 <= found.rate <= 50_000 * 1.1
    assert suggest(profile, 0.999, BYTES) is None


def test_memory_is_bounded_and_rates_without_hope_are_given_up() -> None:
    """A day of ticks of 10 s, with rates from the smallest to the largest."""
    profile = TrafficProfile(LEAST, 0)
    for tick in range(8640):
        arrived = 10 ** (tick % 11)
        profile.add(arrived, 10 * NS_PER_S, (tick + 1) * 10 * NS_PER_S)
    kept = len(profile._backlog) + len(profile._need) + len(profile._seconds)
    assert kept < 26 * STEPS * 3
    assert profile.burst_for(LEAST) is None
    assert profile.burst_for(10**10) == pytest.approx(1.1 * 10**10)


def test_a_burst_that_no_bucket_holds_takes_a_higher_rate() -> None:
    profile = TrafficProfile(LEAST, 0)
    for at in range(200):
        profile.add(10**6 if at < 3 else 1000, NS_PER_S, (at + 1) * NS_PER_S)
    units = BYTES, replace(BYTES, max_burst=2_200_000)
    deep, shallow = (suggest(profile, 0.95, unit) for unit in units)
    assert deep is not None
    assert shallow is not None
    assert deep.rate < shallow.rate
    assert shallow.burst <= 2_200_000


def test_more_than_any_limit_allows_gets_the_largest_limit() -> None:
    profile = TrafficProfile(LEAST, 0)
    for at in range(10):
        profile.add(2 * BYTES.max_rate, NS_PER_S, (at + 1) * NS_PER_S)
    found = suggest(profile, 0.5, BYTES)
    assert found is not None
    assert (found.rate, found.burst) == (BYTES.max_rate, BYTES.max_burst)
