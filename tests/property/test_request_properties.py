"""Requests: partial grants, charges after the fact, and a bucket per limit that agrees."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from drld.model import NS_PER_S, Enforcement
from drld.policy import Mode
from drld.requests.cost import DEBT_S
from drld.requests.datapath import RequestDatapath
from drld.requests.matcher import Matcher
from drld.requests.model import Request
from drld.requests.spec import ITEM, RequestMatch
from drld.units import BYTES

from ..fleets.requests import request_limit

MS = 1_000_000
CALLERS = ("alice", "bob")
MAX_COST = 13


class Gcra:
    """One token bucket in exact arithmetic, written apart from the product: its theoretical
    arrival time (ITU-T I.371), in ns."""

    def __init__(self, burst: int, rate: int) -> None:
        self._span = Fraction(burst * NS_PER_S, rate)
        self._each = Fraction(NS_PER_S, rate)
        self._tat = Fraction(0)

    def wait(self, cost: int, now_ns: int) -> int:
        """Time until a request fits, rounded up, ns."""
        return max(-((now_ns + self._span - self._after(cost, now_ns)) // 1), 0)

    def charge(self, cost: int, now_ns: int) -> None:
        self._tat = self._after(cost, now_ns)

    def _after(self, cost: int, now_ns: int) -> Fraction:
        return max(self._tat, Fraction(now_ns)) + cost * self._each


class Step(NamedTuple):
    gap_ns: int
    plan: str
    cost: int
    at_least: int | None
    charge: bool


STEPS = st.lists(
    st.builds(
        lambda gap_ns, plan, cost, least, kind: Step(
            gap_ns,
            plan,
            cost,
            min(least, cost) if kind == "part" and cost else None,
            kind == "charge" and cost > 0,
        ),
        st.sampled_from([0, 1, 40 * MS, 300 * MS, NS_PER_S, NS_PER_S + 1]),
        st.sampled_from(["free", "paid"]),
        st.integers(0, MAX_COST),
        st.integers(1, MAX_COST),
        st.sampled_from(["whole", "whole", "part", "charge"]),
    ),
    max_size=25,
)
BUCKETS = st.tuples(st.integers(1, 9), st.sampled_from([1, 3, 7]))
"""Burst, and requests a second."""


@given(BUCKETS, BUCKETS, BUCKETS, STEPS)
def test_buckets_of_their_own_agree(
    of_all: tuple[int, int], of_plan: tuple[int, int], shadow: tuple[int, int], steps: list[Step]
) -> None:
    """One GCRA for each limit: all admit, or none is charged; a shadow limit refuses nothing."""
    free = RequestMatch("api", {"plan": "free"})
    limits = [
        request_limit(id=1, rate=of_all[1], burst=of_all[0] * ITEM),
        request_limit(id=2, name="plan", rate=of_plan[1], burst=of_plan[0] * ITEM, match=free),
        request_limit(
            id=3, name="shadow", rate=shadow[1], burst=shadow[0] * ITEM, mode=Mode.SHADOW
        ),
    ]
    path = RequestDatapath(Random(1), b"secret")
    records = [Enforcement(fill_rate=it.policy.rate, depth=it.policy.burst) for it in limits]
    path.attach(list(zip(limits, records, strict=True)), 0)
    bursts = (of_all[0], of_plan[0])
    buckets = [Gcra(*of_all), Gcra(*of_plan)]
    now_ns = 0
    for step in steps:
        now_ns += step.gap_ns
        request = Request(
            "api", {"plan": step.plan}, step.cost, at_least=step.at_least, charge=step.charge
        )
        answer = path.decide(request, now_ns)
        under = 2 if step.plan == "free" else 1
        if step.charge:
            granted = step.cost
        else:
            least = step.cost if step.at_least is None else step.at_least
            fitting = [
                cost
                for cost in range(least, step.cost + 1)
                if max(cost, 1) <= min(bursts[:under])
                and not any(it.wait(max(cost, 1), now_ns) for it in buckets[:under])
            ]
            assert answer.admitted == bool(fitting)
            granted = max(fitting, default=0)
            if not fitting and least <= min(bursts[:under]):
                waits = [it.wait(max(least, 1), now_ns) for it in buckets[:under]]
                assert answer.retry_ns == max(waits)
        assert answer.granted == granted
        for bucket in buckets[:under] if granted else ():
            bucket.charge(granted, now_ns)


RECORDS = st.builds(
    Enforcement,
    drop_probability=st.sampled_from([0.0, 0.0, 0.0, 1.0]),
    fill_rate=st.sampled_from([-1000, 0, 1000, 1_000_000]),
    depth=st.sampled_from([None, 0, 400, 3000, 20_000]),
    flow_rate=st.sampled_from([0, 1000, 10_000]),
    flow_depth=st.sampled_from([600, 2000]),
    reserve=st.sampled_from([0, 1500, 20_000]),
)
ASKED = st.lists(
    st.tuples(
        st.sampled_from(CALLERS),
        st.integers(1, MAX_COST),
        st.integers(1, MAX_COST),
        st.sampled_from([None, 1, 7000, 30_000]),
        st.integers(0, 300),
    ),
    max_size=8,
)


@given(RECORDS, RECORDS, ASKED)
def test_a_part_is_the_largest_that_would_be_admitted_and_a_refusal_leaves_no_trace(
    first: Enforcement, second: Enforcement, asked: list[tuple[str, int, int, int | None, int]]
) -> None:
    """Whatever an allocator has programmed: random drop, fair shares, draining, no bucket."""
    limits = [
        request_limit(id=number, name=f"limit-{number}", unit=BYTES, rate=1, burst=20_000)
        for number in (1, 2)
    ]
    path = RequestDatapath(Random(1), b"secret")
    path.attach(list(zip(limits, (first, second), strict=True)), 0)
    now_ns = 0
    for caller, least, more, size, wait_ms in asked:
        now_ns += wait_ms * MS
        request = Request("api", {}, least + more, size, caller, at_least=least)
        fitting = [
            cost
            for cost in range(least, request.cost + 1)
            if copy_of(path).decide(request.part(cost)._replace(at_least=None), now_ns).admitted
        ]
        before = levels(path, now_ns)
        answer = path.decide(request, now_ns)
        assert answer.granted == max(fitting, default=0)
        assert answer.admitted == bool(fitting)
        if not fitting:
            assert levels(path, now_ns) == before


def copy_of(path: RequestDatapath) -> RequestDatapath:
    """A datapath with the same limits, levels and hashes of callers."""
    copied = RequestDatapath(Random(1), b"secret")
    copied.attach([(limit, path.shares[key]) for key, limit in path.limits.items()], 0)
    copied._policers = {key: policer.copy() for key, policer in path._policers.items()}
    copied._matcher = Matcher(
        (limit, (limit, copied._policers[key])) for key, limit in path.limits.items()
    )
    return copied


def levels(path: RequestDatapath, now_ns: int) -> list[tuple[object, ...]]:
    """The tokens left for each caller, and the time until there are more."""
    peeks = [path.decide(Request("api", {}, 0, 1, caller), now_ns) for caller in CALLERS]
    return [
        (it.remaining, it.reset_ns, it.wait_ns, peek.admitted)
        for peek in peeks
        for it in peek.standings
    ]


@given(
    st.integers(1, 2**31 - 1),
    st.integers(1, 9),
    st.sampled_from([1, 3, 7]),
    st.booleans(),
    st.lists(st.integers(0, 5), max_size=5),
)
def test_a_debt_is_paid_by_time_alone_and_never_takes_longer_than_a_day(
    charged: int, burst: int, rate: int, in_parts: bool, refused: list[int]
) -> None:
    limit = request_limit(id=1, rate=rate, burst=burst * ITEM)
    path = RequestDatapath(Random(1), b"secret")
    path.attach([(limit, Enforcement(fill_rate=rate * ITEM, depth=burst * ITEM))], 0)
    parts = [charged - charged // 2, charged // 2] if in_parts else [charged]
    for part in parts:
        if part:
            assert path.decide(Request("api", {}, part, charge=True), 0).admitted
    debt = min(charged - burst, max(rate * DEBT_S, burst))
    paid_ns = max(-(-(debt + 1) * NS_PER_S // rate), 0)
    for part_of_5 in refused:
        # What is refused meanwhile changes nothing.
        answer = path.decide(Request("api", {}), (paid_ns - 1) * part_of_5 // 5 if debt >= 0 else 0)
        assert answer.admitted == (debt < 0)
        if answer.admitted:
            return
    if paid_ns:
        answer = path.decide(Request("api", {}, 0), paid_ns - 1)
        assert not answer.admitted
        assert answer.retry_ns == 1
    assert path.decide(Request("api", {}), paid_ns).admitted
