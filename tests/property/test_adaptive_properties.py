"""`adaptive`: what a fleet divides is never more than there is, whatever is believed.

A limiter of these fleets ticks with each step. It believes of another anything that this one told
in the last steps, another value at each tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from drld.allocators.adaptive import Adaptive, AdaptiveParameters
from drld.allocators.base import Allocation, InForce
from drld.gossip.fabrics.sliding_min import SlidingMin
from drld.gossip.wire.update_codec import to_float32
from drld.model import Demand, GlobalView

from ..examples import examples
from ..factories import demand, view

ITEM = 1_000_000
RATE, BURST = 1_100 * ITEM, 26 * ITEM
OLDEST = 5
"""Steps."""
STEP_NS = 100_000_000
NEWEST = AdaptiveParameters(window=0.1, step=0.1)
"""Each step has a history of its own."""


class _Limiter:
    """One limiter, and all that it ever told."""

    def __init__(self, share: float, naive: bool) -> None:
        self.share = share
        self.allocator = Adaptive(NEWEST)
        self.told: list[tuple[float, float]] = [(0.0, 0.0)]
        self.least = [SlidingMin((OLDEST + 1) * STEP_NS) for _ in range(2)]
        self.naive = naive
        self.last: Allocation | None = None

    def tick(self, measured: Demand, found: GlobalView, limit: InForce, now_ns: int) -> None:
        """Allocate with these views, and tell the claims."""
        assert found.second is not None
        rate, backlog = (
            (0.0, 0.0) if len(self.told) == 1 else (it.latest(now_ns) for it in self.least)
        )
        if self.naive:
            rate = backlog = 1e15
        seen = replace(found, told=rate, second=replace(found.second, told=backlog))
        made = self.allocator.allocate(measured, seen, limit, STEP_NS)
        claims = to_float32(made.value), to_float32(made.second)
        for least, claim, before in zip(self.least, claims, self.told[-1], strict=True):
            if len(self.told) == 1:
                least.update(before, now_ns)
            least.update(claim, now_ns)
        self.told.append(claims)
        self.last = made


def worst(
    shares: Sequence[float],
    measured: Sequence[Sequence[tuple[float, float]]],
    links: Sequence[Sequence[bool]],
    rng: Random,
    naive: bool = False,
) -> tuple[float, float]:
    """The largest sums of the rates and of the depths, over those of the limit.

    Args:
        shares: static shares; they sum to 1.
        measured: by step and limiter, the rate and the backlog of the limit.
        links: whether two limiters are connected.
        rng: decides which values are believed.
        naive: shares are divided by the newest claims.
    """
    fleet = [_Limiter(share, naive) for share in shares]
    numbers = range(len(fleet))
    most = [0.0, 0.0]

    def believed(number: int, quantity: int) -> float:
        return rng.choice(fleet[number].told[-OLDEST:])[quantity]

    def remote(owner: int, number: int, quantity: int) -> float:
        """The demand that the owner of a share believes all limiters but another one to have."""
        known = (it for it in numbers if it != number and (it == owner or links[owner][it]))
        return sum(believed(it, quantity) for it in known)

    for step, values in enumerate(measured):
        for number in rng.sample(numbers, len(fleet)):
            one = fleet[number]
            connected = [it for it in numbers if it != number and links[number][it]]
            whole = sum(shares[it] for it in (number, *connected))
            views = [
                replace(
                    view(remote(number, number, quantity)),
                    claims=tuple(
                        (shares[it], remote(it, number, quantity)) for it in (number, *connected)
                    ),
                )
                for quantity in (0, 1)
            ]
            rate, backlog = values[number]
            limit = InForce(
                RATE * whole, BURST * whole, RATE * one.share, BURST * one.share,
                item=ITEM, whole_rate=RATE, whole_burst=BURST, least_burst=BURST * min(shares),
            )  # fmt: skip
            one.tick(
                replace(demand(rate * RATE), backlog=round(backlog * BURST)),
                replace(views[0], second=views[1]),
                limit,
                step * STEP_NS,
            )
            made = [it.last.enforcement for it in fleet if it.last]
            if len(made) == len(fleet):
                most[0] = max(most[0], sum(it.fill_rate for it in made) / RATE)
                most[1] = max(most[1], sum(it.depth or 0 for it in made) / BURST)
    return most[0], most[1]


_values = st.sampled_from([0.0, 0.0, 0.001, 0.05, 0.2, 0.9, 1.0, 3.0, 20.0])


Fleet: TypeAlias = tuple[list[float], list[list[tuple[float, float]]], list[list[bool]]]
"""The first three arguments of `worst`."""


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Static shares, what is measured, and links."""
    size = draw(st.integers(1, 6))
    parts = [draw(st.sampled_from([1, 1, 2, 5])) for _ in range(size)]
    pairs = st.lists(st.tuples(_values, _values), min_size=size, max_size=size)
    links = [[True] * size for _ in range(size)]
    for one, other in draw(st.sets(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)))):
        links[one][other] = links[other][one] = False
    measured = draw(st.lists(pairs, min_size=1, max_size=25))
    return [part / sum(parts) for part in parts], measured, links


@settings(max_examples=examples(150), deadline=None)
@given(fleet=fleets(), seed=st.integers(0, 2**32))
def test_no_moment_has_more_than_the_limit(fleet: Fleet, seed: int) -> None:
    """The theorem of drld/allocators/adaptive.py: any values, any changes at once, any cuts."""
    rate, burst = worst(*fleet, Random(seed))
    assert rate <= 1 + 1e-9
    assert burst <= 1 + 1e-9


def jumps(seed: int) -> Fleet:
    """A fleet whose values jump, at random."""
    rng = Random(seed)
    size = rng.randint(2, 6)
    values = [
        [(rng.choice([0.05, 0.2, 1.0]), rng.choice([0.05, 1.0, 3.0])) for _ in range(size)]
        for _ in range(25)
    ]
    return [1 / size] * size, values, [[True] * size for _ in range(size)]


def test_the_newest_claims_would_divide_more_than_there_is() -> None:
    """The property fails where limiters use their newest claims, and holds where they do not."""
    naive = [worst(*jumps(seed), Random(seed), naive=True) for seed in range(20)]
    assert min(max(rate for rate, _ in naive), max(burst for _, burst in naive)) > 1.3
    ruled = [worst(*jumps(seed), Random(seed)) for seed in range(20)]
    assert max(max(pair) for pair in ruled) <= 1 + 1e-9
