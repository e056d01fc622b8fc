"""The tree: no loop whoever believes what, no bias by what the network does, sane on any input."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.gossip.fabrics.tree_ranks import Role, candidates, rank
from drld.gossip.fabrics.tree_update import MAX_MEMBERS
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import Quantity

from .. import wire
from ..examples import examples
from ..factories import TICK_NS
from ..fleets.fabrics import BareFleet, fabric

names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


@given(names=names, branching=st.integers(1, 9), data=st.data())
def test_no_choice_of_parents_makes_a_loop(
    names: list[str], branching: int, data: st.DataObject
) -> None:
    """Each limiter knows a fleet of its own, and reports to any of its candidates."""
    parent: dict[str, str] = {}
    for name in names:
        known = data.draw(st.sets(st.sampled_from(names)))
        if ranked := candidates(name, known - {name}, branching):
            parent[name] = data.draw(st.sampled_from(ranked))
    for name in names:
        steps = 0
        while name in parent:
            name = parent[name]  # noqa: PLW2901 -- up the tree
            steps += 1
            assert steps < len(names)


@given(names=names, branching=st.integers(1, 9), data=st.data())
def test_a_peer_that_leaves_does_not_change_the_order_of_the_others(
    names: list[str], branching: int, data: st.DataObject
) -> None:
    name, *peers = names
    gone = data.draw(st.sets(st.sampled_from(names)))
    before = candidates(name, peers, branching)
    after = candidates(name, [peer for peer in peers if peer not in gone], branching)
    assert set(before) == {peer for peer in peers if rank(peer) < rank(name)}
    assert list(after) == [peer for peer in before if peer not in gone]


demands = st.one_of(st.just(0.0), st.floats(0, 1e10), st.floats(1e-3, 1e3))
FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["tick", "deliver", "repeat", "lose"]),
        st.integers(0, 99),
        st.integers(0, 9),
    ),
    max_size=80,
)


def carry_out(fleet: BareFleet, faults: list[tuple[str, int, int]]) -> None:
    """Ticks, and any datagram under way delivered, delivered and kept, or lost."""
    for what, which, index in faults:
        if what == "tick":
            fleet.tick(fleet.names[which % len(fleet.names)])
        elif waiting := fleet.waiting:
            link = waiting[which % len(waiting)]
            place = index % len(fleet.links[link])
            if what == "lose":
                del fleet.links[link][place]
            else:
                fleet.deliver(link, place, again=what == "repeat")


@settings(max_examples=examples(40), deadline=None)
@given(values=st.lists(demands, min_size=2, max_size=6), faults=FAULTS)
def test_loss_repetition_and_disorder_change_no_total(
    values: list[float], faults: list[tuple[str, int, int]]
) -> None:
    """A fleet in which all know each other, while demands stay the same."""
    fleet = BareFleet("tree", len(values))
    fleet.demand = dict(zip(fleet.names, values, strict=True))
    fleet.rounds(20)
    known = fleet.believed()
    total = math.fsum(values)
    assert known == pytest.approx([total] * len(known), rel=1e-6)
    carry_out(fleet, faults)
    assert fleet.believed() == known


@settings(max_examples=examples(40), deadline=None)
@given(
    size=st.integers(1, 6),
    changes=st.lists(st.tuples(st.integers(0, 5), demands, FAULTS), max_size=4),
    pause=st.integers(1, 40),
)
def test_after_any_faults_all_agree_on_the_true_total(
    size: int, changes: list[tuple[int, float, list[tuple[str, int, int]]]], pause: int
) -> None:
    fleet = BareFleet("tree", size)
    for which, value, faults in changes:
        fleet.demand[fleet.names[which % size]] = value
        carry_out(fleet, faults)
        fleet.now_ns += pause * TICK_NS
    fleet.rounds(70)
    total = math.fsum(fleet.demand.values())
    assert fleet.believed() == pytest.approx([total] * size, rel=1e-6)
    for made in fleet.fabrics.values():
        view = made.view(fleet.now_ns)
        assert (len(view.connected), view.unnamed) == (size - 1, 0)


@settings(max_examples=examples(100))
@given(
    said=st.lists(
        st.tuples(
            st.sampled_from("bcd"),
            st.integers(0, 40),
            st.sampled_from(list(Quantity)),
            st.sampled_from(Role),
            st.floats(0, MAX_VALUE, width=32),
            st.integers(0, MAX_MEMBERS),
            st.integers(0, 30),
        ),
        max_size=60,
    ),
    value=st.floats(0, MAX_VALUE),
)
def test_the_fabric_stays_sane_under_any_updates(
    said: list[tuple[str, int, Quantity, Role, float, int, int]], value: float
) -> None:
    made = fabric("tree", "a", "abcd")
    now_ns = 0
    rng = Random(1)
    for peer, sequence, quantity, role, told, members, pause in said:
        now_ns += pause * TICK_NS
        made.receive(peer, wire.tree(1, sequence, role, told, members, quantity=quantity), now_ns)
        view = made.view(now_ns)
        assert 0 <= view.remote < math.inf
        assert 0 <= len(view.connected) + view.unnamed <= 3
        targets = made.membership.targets(rng)
        assert len(set(targets)) == len(targets)
        for _, update in made.publish(value, targets, now_ns):
            assert wire.carried(update) == update
        for target in targets:
            update = made.membership.heartbeat(target, now_ns)
            assert wire.carried(update) == update
