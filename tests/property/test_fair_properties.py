"""Properties of `fair`: the fixed point of its weights, its account, and its strict shares."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.allocators.fair import Fair
from drld.allocators.loan import LAST_TICKS, LoanAccount
from drld.allocators.water_level import water_level
from drld.estimate.flows import FlowState
from drld.gossip.fabrics.sliding_min import SlidingMin
from drld.model import NS_PER_S, Enforcement
from drld.police.token_bucket import TokenBucket

from ..factories import MS, TICK_NS
from ..fair_factories import LIMIT, believed, demand, greedy, in_force, make, sampled

parts = st.floats(1e-4, 1.5)
"""Rates as parts of the limit."""
flows = st.tuples(st.lists(parts, max_size=6), st.integers(0, 6))
"""A limiter's flows: rates of those that are not limited, and the number of greedy ones."""
fleets = st.lists(flows, min_size=1, max_size=12)


def answer(fair: Fair, sample: Sequence[FlowState], remote: float) -> float:
    """The weight of a limiter whose peers have told so much."""
    wanted = demand(*sample, instant_rate=100 * LIMIT)
    return fair.allocate(wanted, believed(remote), in_force(), TICK_NS).value


def sample_of(slow: Sequence[float], whole: int) -> list[FlowState]:
    return [*(sampled(part * LIMIT) for part in slow), *greedy(whole)]


@given(fleet=fleets, begin=st.lists(st.floats(0, 100), min_size=12, max_size=12))
def test_weights_come_to_the_max_min_level_of_all_flows(
    fleet: list[tuple[list[float], int]], begin: list[float]
) -> None:
    """The weights converge from any earlier values, if all limiters know all weights."""
    wants = [1.1 * part * LIMIT for slow, _ in fleet for part in slow]
    level = water_level(LIMIT, wants, sum(whole for _, whole in fleet))
    limiters = [make() for _ in fleet]
    samples = [sample_of(*flows) for flows in fleet]
    told = begin[: len(fleet)]
    for _ in range(1000):
        total = sum(told)
        last, told = (
            told,
            [
                answer(fair, sample, total - own)
                for fair, sample, own in zip(limiters, samples, told, strict=True)
            ],
        )
        if last == pytest.approx(told, rel=1e-9, abs=1e-12):
            break
    for value, (slow, whole) in zip(told, fleet, strict=True):
        want = sum(min(1.1 * part * LIMIT, level) for part in slow) + whole * level
        assert value * level == pytest.approx(want, rel=1e-3, abs=1e-3)


@given(flows=flows, remote=st.floats(0, 1000), factor=st.floats(1, 100))
def test_a_weight_is_a_standard_interference_function_of_those_of_the_others(
    flows: tuple[list[float], int], remote: float, factor: float
) -> None:
    """Monotone, and scalable: so iterations converge, whoever takes a turn when (Yates 1995)."""
    sample = sample_of(*flows)
    one, more = (answer(make(), sample, others) for others in (remote, factor * remote))
    assert 0 <= one <= more * (1 + 1e-9)
    assert more <= factor * one * (1 + 1e-9)


@given(
    sent=st.lists(st.floats(1e-4, 4), min_size=1, max_size=64),
    rest=st.floats(0, 20),
    remote=st.floats(0, 100),
)
def test_random_drop_leaves_a_crowd_all_that_the_bucket_passes(
    sent: list[float], rest: float, remote: float
) -> None:
    """It drops nothing if flows outside the sample and the level of those in it fit in."""
    wanted = demand(*(sampled(part * LIMIT) for part in sent), rest=rest * LIMIT)
    fair = make()
    for _ in range(40):
        found = fair.allocate(wanted, believed(remote), in_force(), TICK_NS).enforcement
    passes = (1 - found.drop_probability) * wanted.rate
    assert passes >= min(wanted.rate, found.fill_rate) * (1 - 1e-6)
    if rest * LIMIT + len(sent) * found.flow_rate <= found.fill_rate:
        assert found.drop_probability == 0


# The account


steps = st.lists(
    st.tuples(
        st.floats(0, 2),
        st.floats(0, 2),
        st.floats(0, 2),
        st.floats(0, 1),
        st.sampled_from([0.2, 0.7, 1, 1, 1, 1.3, LAST_TICKS]),
    ),
    min_size=1,
    max_size=40,
)
"""The wanted rate and depth of each interval, its income and traffic, and its length, as parts of
their usual sizes."""


def overdrawn(
    steps: Sequence[tuple[float, float, float, float, float]],
    *,
    interval_ns: int,
    rate: float,
    capacity: float,
    seed: int,
    account: LoanAccount,
) -> float:
    """The most bytes beyond income and capacity in any window, income of its first interval aside.

    A datapath's bucket stands in for the account, and packets come at random.
    """
    rng = Random(seed)
    now_ns, forwarded, earned = 0, 0, 0.0
    bucket = TokenBucket(Enforcement(fill_rate=0, depth=0), now_ns)
    least_excess = most = 0.0
    passed, took_ns = 0, interval_ns
    for wanted, deep, earning, load, length in steps:
        account.settle(passed, earning * rate, capacity, took_ns / NS_PER_S)
        income = earning * rate
        depth = account.depth(deep * capacity, 1500)
        fill = account.fill_rate(wanted * rate, depth, interval_ns / NS_PER_S)
        bucket.program(Enforcement(fill_rate=int(fill), depth=int(depth)), now_ns)
        least_excess = min(least_excess, forwarded - earned)
        took_ns, passed = round(length * interval_ns), 0
        packets = rng.randrange(1 + round(load * 60))
        for at_ns in sorted(rng.randrange(took_ns) for _ in range(packets)):
            size = rng.choice((64, 1500, 1500))
            bucket.settle(now_ns + at_ns)
            if bucket.conforms(size):
                bucket.charge(size)
                passed += size
                excess = forwarded + passed - earned - income * at_ns / NS_PER_S
                most = max(most, excess - least_excess)
        now_ns += took_ns
        forwarded += passed
        earned += income * took_ns / NS_PER_S
    return most - capacity


@given(
    steps=steps,
    interval_ms=st.sampled_from([10, 50, 200, 1000]),
    rate=st.sampled_from([1e3, 1e5, 1e7]),
    seed=st.integers(0, 999),
)
@settings(max_examples=200)
def test_no_more_than_income_and_capacity_is_forwarded(
    steps: list[tuple[float, float, float, float, float]], interval_ms: int, rate: float, seed: int
) -> None:
    """The bound holds in any window from a tick on, while no tick is later than `LAST_TICKS`."""
    excess = overdrawn(
        steps,
        interval_ns=interval_ms * MS,
        rate=rate,
        capacity=max(rate / 4, 3000),
        seed=seed,
        account=LoanAccount(),
    )
    assert excess <= 1


class NoAccount(LoanAccount):
    """An account that limits nothing."""

    def depth(self, wanted: float, least: float) -> float:
        return max(wanted, least)

    def fill_rate(self, wanted: float, depth: float, interval_s: float) -> float:
        return wanted


def test_without_the_account_more_is_forwarded() -> None:
    steps = [(2.0, 1.0, 0.1, 1.0, 1.0)] * 40
    without, with_account = (
        overdrawn(steps, interval_ns=TICK_NS, rate=1e6, capacity=250_000, seed=1, account=account)
        for account in (NoAccount(), LoanAccount())
    )
    assert with_account <= 1
    assert without > 250_000


# Strict shares


@given(
    size=st.integers(2, 8),
    age=st.integers(0, 5),
    seed=st.integers(0, 9999),
    changes=st.sampled_from([0.1, 0.5, 1.0]),
)
@settings(max_examples=60, deadline=None)
def test_strict_shares_sum_to_one_at_most(size: int, age: int, seed: int, changes: float) -> None:
    """The sum holds at every moment, if no used news is older than `age` intervals."""
    assert most_in_strict_shares(size, age, seed, changes, later=0) <= 1 + 1e-9


def test_older_news_makes_shares_exceed_one() -> None:
    found = [most_in_strict_shares(4, 2, seed, 0.5, later=6) for seed in range(20)]
    assert max(found) > 1.1


def most_in_strict_shares(size: int, age: int, seed: int, changes: float, later: int) -> float:
    """The largest sum of the strict shares in force, in a fleet of random weights.

    Each limiter ticks at a phase of its own, tells its weight at once, and believes of each other
    one what that told at some time in the last `age` intervals, or `later` ones more.
    """
    rng = Random(seed)
    fairs = [make(margin=0.0) for _ in range(size)]
    news_ns = age * TICK_NS
    lasting = [SlidingMin(news_ns + TICK_NS) for _ in range(size)]
    history: list[list[tuple[int, float]]] = [[(0, 0.0)] for _ in range(size)]
    for extreme in lasting:
        extreme.update(0.0, 0)
    phases = sorted(rng.randrange(TICK_NS) for _ in range(size))
    counts = [1] * size
    shares = [0.0] * size
    most = 0.0
    limit = in_force(static_rate=LIMIT / size, static_burst=0.06 * LIMIT / size)
    for round_number in range(1, 60):
        for number, (fair, phase) in enumerate(zip(fairs, phases, strict=True)):
            now_ns = round_number * TICK_NS + phase
            if rng.random() < changes:
                counts[number] = rng.choice((0, 1, 1, 5, 50))
            remote = sum(
                _believed(told, now_ns - rng.randrange((age + later) * TICK_NS + 1), rng)
                for other, told in enumerate(history)
                if other != number
            )
            view = believed(remote, lasting[number].latest(now_ns), news_ns + TICK_NS)
            found = fair.allocate(demand(*greedy(counts[number])), view, limit, TICK_NS)
            shares[number] = fair._bucket.account._income / LIMIT
            most = max(most, sum(shares))
            lasting[number].update(found.value, now_ns)
            history[number].append((now_ns, found.value))
    return most


def _believed(told: list[tuple[int, float]], since_ns: int, rng: Random) -> float:
    """Something that was the newest word at that time or later."""
    last = max(index for index, (told_ns, _) in enumerate(told) if told_ns <= max(since_ns, 0))
    return rng.choice([value for _, value in told[last:]])
