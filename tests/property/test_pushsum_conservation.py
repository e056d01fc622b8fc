"""Push-sum: no mass comes from nowhere or goes without a trace, whatever happens.

A ledger of each epoch: what limiters hold in it, what is under way of it, and what is known to have
gone, are what limiters brought into it, their own demand and a weight of one each.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from drld.gossip.fabrics.pushsum import MAX_COPIES, PushSum
from drld.gossip.fabrics.pushsum_pair import Mass, Pair

from .. import wire
from ..examples import examples
from ..factories import TICK_NS
from ..fleets.fabrics import BareFleet, set_members

demands = st.one_of(st.just(0.0), st.floats(0, 1e10), st.floats(0, 1e-3))


class Sum:
    """The sums of values and of weights."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.weights: list[float] = []

    def add(self, value: float, weight: float, times: float = 1.0) -> None:
        self.values.append(times * value)
        self.weights.append(times * weight)


class Ledger(BareFleet):
    """Limiters of push-sum, and the ledger."""

    fabrics: dict[str, PushSum]  # type: ignore[assignment]  # narrower

    def __init__(self, size: int) -> None:
        super().__init__("pushsum", size, branching=2)
        self.newest: dict[tuple[str, str], int] = {}
        self.heard: dict[tuple[str, str, int], int] = {}
        """The life of its receiver's epoch in which a link was used last."""
        self.lives: defaultdict[str, int] = defaultdict(int)
        self.brought: defaultdict[int, Sum] = defaultdict(Sum)
        """The mass that limiters had when they left the epoch."""
        self.gone: defaultdict[int, Sum] = defaultdict(Sum)
        """Left behind, discarded, or (negative) counted more than once."""
        self.largest = 0.0

    @contextmanager
    def watched(self, name: str) -> Iterator[None]:
        """Enter it if a limiter leaves its epoch."""
        limiter = self.fabrics[name]
        epoch, mass = limiter.epoch, limiter.mass
        before = (mass.value, mass.weight, mass.own)
        yield
        if limiter.epoch != epoch:
            event("an epoch is left")
            self.lives[name] += 1
            self.gone[epoch].add(before[0], before[1])
            self.brought[epoch].add(before[2], 1.0)

    def tick(self, name: str) -> None:
        self.largest = max(self.largest, self.demand[name])
        limiter = self.fabrics[name]
        targets = limiter.membership.targets(self.rng)
        with self.watched(name):
            told = limiter.publish(self.demand[name], targets, self.now_ns)
        for peer, update in told:
            self.links[name, peer].append(wire.carried(update))

    def deliver(self, link: tuple[str, str], place: int = 0, *, again: bool = False) -> None:
        """An update overtakes those before it, and is delivered once more later if `again`."""
        sender, receiver = link
        waiting = self.links[link]
        update = waiting[place] if again else waiting.pop(place)
        limiter = self.fabrics[receiver]
        with self.watched(receiver):
            limiter.receive(sender, update, self.now_ns)
        newest = self.newest.get(link)
        copies = 0.0
        if newest is None or update.sequence > newest:
            self.newest[link] = update.sequence
            lost = 0 if newest is None else update.sequence - newest - 1
            # What was lost before the first pair of an epoch was lost in the one before, or not.
            key = (*link, update.epoch)
            used = self.heard.get(key) == self.lives[receiver]
            if update.weight and update.epoch == limiter.epoch:
                copies = min(1 + (lost if used else lost / 2), MAX_COPIES)
                self.heard[key] = self.lives[receiver]
        event(f"counted {copies:g} times")
        # The first copy of a repeated datagram moves its mass; a further copy has no effect.
        self.gone[update.epoch].add(update.value, update.weight, -copies if again else 1 - copies)

    def lose(self, link: tuple[str, str]) -> None:
        update = self.links[link].pop(0)
        self.gone[update.epoch].add(update.value, update.weight)

    def leave(self, name: str) -> None:
        """All others are told by a reload that it is gone."""
        limiter = self.fabrics.pop(name)
        self.names.remove(name)
        self.gone[limiter.epoch].add(limiter.mass.value, limiter.mass.weight)
        self.brought[limiter.epoch].add(limiter.mass.own, 1.0)
        for link in [link for link in self.links if name in link]:
            for update in self.links.pop(link):
                self.gone[update.epoch].add(update.value, update.weight)
        for fabric in self.fabrics.values():
            set_members(fabric, self.names)

    def check(self) -> None:
        held: defaultdict[int, Sum] = defaultdict(Sum)
        brought: defaultdict[int, Sum] = defaultdict(Sum)
        for limiter in self.fabrics.values():
            held[limiter.epoch].add(limiter.mass.value, limiter.mass.weight)
            brought[limiter.epoch].add(limiter.mass.own, 1.0)
            assert limiter.mass.weight > 0
        for updates in self.links.values():
            for update in updates:
                held[update.epoch].add(update.value, update.weight)
        for epoch in held.keys() | self.gone.keys():
            ours = [held[epoch], self.gone[epoch]]
            theirs = [brought[epoch], self.brought[epoch]]
            moved = max(map(abs, [*self.gone[epoch].values, *held[epoch].values]), default=0.0)
            assert math.fsum(v for s in ours for v in s.values) == pytest.approx(
                math.fsum(v for s in theirs for v in s.values),
                rel=1e-12, abs=max(moved, self.largest) * 1e-11,
            )  # fmt: skip
            assert math.fsum(w for s in ours for w in s.weights) == pytest.approx(
                math.fsum(w for s in theirs for w in s.weights), rel=1e-12, abs=1e-11
            )


ticks = st.tuples(st.just("tick"), st.integers(0, 5), demands)
deliveries = st.tuples(st.just("deliver"), st.integers(0, 99), st.just(0.0))
Steps = list[tuple[str, int, float]]


def steps_of(*kinds: st.SearchStrategy[tuple[str, int, float]]) -> st.SearchStrategy[Steps]:
    return st.lists(st.one_of(*kinds), min_size=40, max_size=80)


def carry_out(fleet: Ledger, what: str, index: int, demand: float) -> None:
    """Carry out one step."""
    if what == "tick":
        name = fleet.names[index % len(fleet.names)]
        fleet.demand[name] = demand
        fleet.tick(name)
    elif what == "round":
        fleet.rounds(index)
    elif what == "wait":
        fleet.now_ns += index * TICK_NS
    elif what == "leave":
        if len(fleet.names) > 2:
            fleet.leave(fleet.names[index % len(fleet.names)])
    elif waiting := fleet.waiting:
        link = waiting[index % len(waiting)]
        if what == "lose":
            fleet.lose(link)
        else:
            place = 1 if what == "overtake" and len(fleet.links[link]) > 1 else 0
            fleet.deliver(link, place, again=what == "repeat")
    fleet.check()


@settings(max_examples=examples(60))
@given(
    size=st.integers(1, 6),
    steps=steps_of(
        ticks,
        deliveries,
        st.tuples(st.sampled_from(["overtake", "repeat"]), st.integers(0, 99), st.just(0.0)),
    ),
    wanted=st.sampled_from([1.0, 1.0, 1.0, 0.0]),
)
def test_mass_is_conserved(size: int, steps: Steps, wanted: float) -> None:
    """Mass is conserved in one epoch, although updates are reordered or repeated.

    Time stands still, so that no limiter times out and no epoch begins.
    """
    fleet = Ledger(size)
    for what, index, demand in steps:
        carry_out(fleet, what, index, wanted * demand)
    assert {limiter.epoch for limiter in fleet.fabrics.values()} == {0}
    if not fleet.largest:
        assert all(limiter.mass.value == 0.0 for limiter in fleet.fabrics.values())


@settings(max_examples=examples(40))
@given(
    size=st.integers(3, 6),
    steps=steps_of(
        ticks,
        deliveries,
        st.tuples(st.just("lose"), st.integers(0, 99), st.just(0.0)),
        st.tuples(st.just("round"), st.integers(1, 12), st.just(0.0)),
        st.tuples(st.just("wait"), st.integers(1, 40), st.just(0.0)),
        st.tuples(st.just("leave"), st.integers(0, 5), st.just(0.0)),
    ),
)
def test_no_change_of_epochs_creates_mass(size: int, steps: Steps) -> None:
    """Updates get lost, limiters leave and time out: epochs begin, are adopted, or joined again."""
    fleet = Ledger(size)
    for name in fleet.names:
        fleet.demand[name] = 1e6
        fleet.tick(name)
    fleet.rounds(12)
    for step in steps:
        carry_out(fleet, *step)


@given(
    value=st.floats(-1e12, 1e12),
    weight=st.floats(2.0**-20, 2.0**20),
    shares=st.integers(0, 8),
    tokens=st.integers(0, 8),
)
def test_a_split_is_exact(value: float, weight: float, shares: int, tokens: int) -> None:
    """A split takes out exactly the mass that the wire carries."""
    mass = Mass()
    mass.add(Pair(value, weight), peers=1)
    before = Fraction(mass.value), Fraction(mass.weight)
    share, token = mass.split(shares, tokens)
    for had, kept, each, more in zip(before, (mass.value, mass.weight), share, token, strict=True):
        out = shares * Fraction(each) + tokens * Fraction(more)
        assert Fraction(kept) + out == had
