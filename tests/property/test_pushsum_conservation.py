"""Push-sum: no mass comes from nowhere or goes without a trace, whatever happens to updates.

What limiters hold, and what is under way on links (the sums that were told, less those that came),
is what limiters brought: their own demand and a weight of one each. The sums of the links are those
on the wire, not those that the fabrics keep.
"""

import math
from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from drld.gossip.fabrics.pushsum import PushSum
from drld.gossip.fabrics.pushsum_pair import NOTHING, Mass, Pair
from drld.gossip.fabrics.pushsum_update import PushsumUpdate
from drld.gossip.wire.update_codec import to_float32
from drld.model import HEARTBEAT, Update

from .. import wire
from ..examples import examples
from ..factories import TICK_NS
from ..fleets.fabrics import BareFleet, fabric

demands = st.one_of(st.just(0.0), st.floats(0, 1e10), st.floats(0, 1e-3))
Link = tuple[str, str]


class Ledger(BareFleet):
    """Limiters of push-sum, and the sums on the wire."""

    fabrics: dict[str, PushSum]  # type: ignore[assignment]  # narrower

    def __init__(self, size: int) -> None:
        super().__init__("pushsum", size, branching=2)
        self.newest: dict[Link, int] = {}
        self.told: defaultdict[Link, Pair] = defaultdict(lambda: NOTHING)
        self.came: defaultdict[Link, Pair] = defaultdict(lambda: NOTHING)
        self.largest = 0.0
        self.dead: set[str] = set()

    @property
    def alive(self) -> list[str]:
        return [name for name in self.names if name not in self.dead]

    def tick(self, name: str) -> None:
        if name in self.dead:
            return
        self.largest = max(self.largest, self.demand[name])
        before = {link: len(updates) for link, updates in self.links.items()}
        super().tick(name)
        for link, updates in self.links.items():
            for update in updates[before[link] :]:
                if update.limit_id != HEARTBEAT and update.hears:
                    self.told[link] = Pair(update.value, update.weight)

    def receive(self, sender: str, receiver: str, update: Update) -> None:
        assert isinstance(update, PushsumUpdate)
        if receiver in self.dead:
            return
        super().receive(sender, receiver, update)
        link = sender, receiver
        if update.limit_id != HEARTBEAT and update.sequence > self.newest.get(link, -1):
            self.newest[link] = update.sequence
            if update.hears:
                self.came[link] = Pair(update.value, update.weight)

    def restart(self, name: str) -> None:
        """Begin another life of a limiter, whose sessions are all new."""
        self.dead.discard(name)
        self.fabrics[name] = fabric("pushsum", name, self.names, branching=2)  # type: ignore[assignment]  # narrower
        for link in [link for link in self.links if name in link]:
            self.links[link].clear()
            self.newest.pop(link, None)
        for peer in self.names:
            known = self.fabrics[peer]
            if peer != name and known.limit_id in known.membership.on_session(name, self.now_ns):
                known.on_session(name)

    def check(self) -> None:
        """All limiters are in one epoch, and the sums are what they must be."""
        assert len({self.fabrics[name].epoch for name in self.alive}) == 1
        masses = [self.fabrics[name].mass for name in self.alive]
        links = [(a, b) for a in self.alive for b in self.alive if a != b]
        for whole, part, tolerance in (
            (math.fsum(mass.own for mass in masses), 0, 1e-9 * self.largest),
            (len(masses), 1, 1e-9),
        ):
            held = math.fsum((mass.value, mass.weight)[part] for mass in masses)
            under_way = math.fsum(self.told[link][part] - self.came[link][part] for link in links)
            assert held + under_way == pytest.approx(whole, rel=1e-12, abs=tolerance)
        assert all(mass.weight > 0 for mass in masses)


Steps = list[tuple[str, int, float]]
ticks = st.tuples(st.just("tick"), st.integers(0, 5), demands)
faults = st.tuples(
    st.sampled_from(["deliver", "deliver", "lose", "overtake", "repeat"]),
    st.integers(0, 99),
    st.just(0.0),
)
network = st.lists(st.one_of(ticks, faults), min_size=40, max_size=80)
"""Steps with all that happens to updates; time stands still."""


def carry_out(fleet: Ledger, what: str, index: int, demand: float) -> None:
    """Carry out one step."""
    name = fleet.names[index % len(fleet.names)]
    if what == "tick":
        fleet.demand[name] = demand
        fleet.tick(name)
    elif what == "round":
        fleet.rounds(index)
    elif what == "wait":
        fleet.now_ns += index * TICK_NS
    elif what == "die":
        if len(fleet.alive) > 2:
            fleet.dead.add(name)
    elif what == "restart":
        fleet.restart(name)
    elif waiting := fleet.waiting:
        link = waiting[index % len(waiting)]
        if what == "lose":
            fleet.links[link].pop(0)
        else:
            place = 1 if what == "overtake" and len(fleet.links[link]) > 1 else 0
            fleet.deliver(link, place, again=what == "repeat")


@settings(max_examples=examples(60))
@given(size=st.integers(1, 6), steps=network, wanted=st.sampled_from([1.0, 1.0, 1.0, 0.0]))
def test_mass_is_conserved(size: int, steps: Steps, wanted: float) -> None:
    """Although updates are lost, reordered or repeated."""
    fleet = Ledger(size)
    for what, index, demand in steps:
        carry_out(fleet, what, index, wanted * demand)
        fleet.check()
    assert {limiter.epoch for limiter in fleet.fabrics.values()} == {0}
    if not fleet.largest:
        assert all(limiter.mass.value == 0.0 for limiter in fleet.fabrics.values())


@settings(max_examples=examples(40))
@given(
    size=st.integers(3, 6),
    trouble=st.lists(
        st.one_of(
            ticks,
            faults,
            st.tuples(st.just("round"), st.integers(1, 12), st.just(0.0)),
            st.tuples(st.just("wait"), st.integers(1, 40), st.just(0.0)),
            st.tuples(st.sampled_from(["die", "restart"]), st.integers(0, 5), st.just(0.0)),
        ),
        min_size=20,
        max_size=60,
    ),
    steps=network,
)
def test_mass_is_whole_again_after_deaths_and_restarts(
    size: int, trouble: Steps, steps: Steps
) -> None:
    """And it stays so, while updates are lost: the epoch after the last event has no trace of it.

    200 rounds are a time to be counted out (22 cycles), two settling times, and one to settle. With
    losses that were counted before, they are 140 at most.
    """
    fleet = Ledger(size)
    for name in fleet.names:
        fleet.demand[name] = 1e6
    fleet.rounds(12)
    for step in trouble:
        carry_out(fleet, *step)
    for name in fleet.names:
        fleet.demand[name] = 1e6
    fleet.rounds(200)
    event(f"{len(fleet.alive)} of {size} are alive, epoch {fleet.fabrics[fleet.alive[0]].epoch}")
    fleet.check()
    for name in fleet.alive:
        remote = fleet.fabrics[name].view(fleet.now_ns).remote
        rounding = 1e-6 * fleet.largest  # of sums from before a fall of demand
        assert remote == pytest.approx(1e6 * (len(fleet.alive) - 1), rel=1e-3, abs=rounding)
    for what, index, demand in steps:
        carry_out(fleet, what, index, 1e9 + demand)  # a fall by far would begin an epoch
        fleet.check()


sums = st.builds(
    Pair,
    st.floats(-1e12, 1e12).map(to_float32),
    st.floats(2.0**-20, 2.0**10).map(to_float32),
)


@given(
    value=st.floats(-1e12, 1e12),
    weight=st.floats(2.0**-20, 2.0**10),
    told=st.lists(sums, max_size=8),
    part=st.floats(2.0**-10, 1.0),
)
def test_a_split_takes_out_what_the_sums_grow_by(
    value: float, weight: float, told: list[Pair], part: float
) -> None:
    """To within the rounding of doubles; and it keeps at least its own part of the weight."""
    mass = Mass()
    mass.add(Pair(value, weight), peers=1)
    before = Fraction(mass.value), Fraction(mass.weight)
    after = mass.split(told, part)
    for of, had, kept in zip((0, 1), before, (mass.value, mass.weight), strict=True):
        out = sum(
            Fraction(new[of]) - Fraction(old[of]) for new, old in zip(after, told, strict=True)
        )
        largest = max([abs(pair[of]) for pair in [*told, *after]], default=0.0)
        most = 2.0**-50 * (float(abs(had)) + largest)
        assert abs(Fraction(kept) + out - had) <= most
    assert mass.weight >= float(before[1]) / (1 + part * len(told)) * (1 - 2.0**-40)
    for new, old in zip(after, told, strict=True):
        assert new.weight >= old.weight
        assert new == Pair(*map(to_float32, new))
        sent = wire.pushsum(1, 0, *new)
        assert wire.carried(sent) == sent
