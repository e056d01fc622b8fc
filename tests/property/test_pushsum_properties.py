"""Push-sum: conservation of mass, compensation of losses, safety against any input."""

import math
from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.gossip.fabrics.pushsum import MAX_COPIES, PushSum, PushsumMembership
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT, PushsumUpdate
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32
from drld.model import Quantity

from .. import wire
from ..examples import examples

TICK = 50_000_000


def push_sum(name: str, names: list[str], branching: int = 2) -> PushSum:
    membership = PushsumMembership(
        name, [peer for peer in names if peer != name], PushSum.fanout(branching), TICK
    )
    return PushSum(membership=membership, limit_id=1, quantity=Quantity.RATE)


demands = st.one_of(st.just(0.0), st.floats(0, 1e10), st.floats(0, 1e-3))


@settings(max_examples=examples(60))
@given(
    size=st.integers(1, 5),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("tick"), st.integers(0, 4), demands),
            st.tuples(st.just("deliver"), st.integers(0, 99), st.just(0.0)),
        ),
        min_size=60,
        max_size=120,
    ),
    seed=st.integers(0, 2**16),
)
def test_mass_is_conserved(size: int, steps: list[tuple[str, int, float]], seed: int) -> None:
    """Whatever order ticks and deliveries come in, as long as nothing is lost or overtaken.

    Time stands still, so that nobody times out however long a datagram is under way.
    """
    names = [f"l{index}" for index in range(size)]
    fabrics = {name: push_sum(name, names) for name in names}
    links: dict[tuple[str, str], deque[PushsumUpdate]] = {
        (a, b): deque() for a in names for b in names if a != b
    }
    rng = Random(seed)
    demand = dict.fromkeys(names, 0.0)
    largest = 0.0
    for what, index, value in steps:
        if what == "tick":
            name = names[index % size]
            demand[name] = value
            largest = max(largest, value)
            fabric = fabrics[name]
            for peer, update in fabric.publish(value, fabric.membership.targets(rng), 0):
                links[name, peer].append(wire.carried(update))
        else:
            waiting = [link for link, updates in links.items() if updates]
            if waiting:
                sender, receiver = waiting[index % len(waiting)]
                fabrics[receiver].receive(sender, links[sender, receiver].popleft(), 0)
        under_way = [update for updates in links.values() for update in updates]
        masses = [fabric.mass for fabric in fabrics.values()]
        values = math.fsum([m.value for m in masses] + [u.value for u in under_way])
        weights = math.fsum([m.weight for m in masses] + [u.weight for u in under_way])
        assert values == pytest.approx(sum(demand.values()), rel=1e-12, abs=largest * 1e-11)
        assert weights == pytest.approx(size, rel=1e-12)
        assert all(mass.weight > 0 for mass in masses)
        assert all(fabric.epoch == 0 for fabric in fabrics.values())
    if not largest:
        assert all(fabric.mass.value == 0.0 for fabric in fabrics.values())


@given(
    arriving=st.lists(st.booleans(), min_size=10, max_size=60),
    value=st.floats(-1e9, 1e9),
    weight=st.floats(0.001, 100),
)
def test_losses_are_made_up_for(arriving: list[bool], value: float, weight: float) -> None:
    """Equal pairs count as if none had been lost, up to the newest, while gaps are short."""
    value, weight = to_float32(value), to_float32(weight)
    fabric = push_sum("a", ["a", "b"])
    first = newest = None
    gap = 0
    for sequence, arrives in enumerate(arriving):
        gap += 1
        if arrives or gap == MAX_COPIES:
            fabric.receive("b", wire.pushsum(1, sequence, value, weight), 0)
            first = sequence if first is None else first
            newest = sequence
            gap = 0
    if first is not None and newest is not None:
        count = newest - first + 1
        assert fabric.mass.weight == pytest.approx(1 + count * weight)
        assert fabric.mass.value == pytest.approx(count * value)


hostile = st.builds(
    wire.pushsum,
    limit_id=st.just(1),
    sequence=st.one_of(st.integers(0, 30), st.integers(0, 2**32 - 1)),
    quantity=st.sampled_from(Quantity),
    epoch=st.integers(0, 15),
    value=st.floats(-MAX_VALUE, MAX_VALUE, width=32),
    weight=st.floats(0, MAX_WEIGHT, width=32),
)


@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("bc"), hostile), max_size=4),
            st.floats(0, MAX_VALUE),
            st.integers(0, 3 * TICK),
        ),
        min_size=8,
        max_size=25,
    )
)
def test_whatever_peers_say_the_fabric_stays_sane(
    steps: list[tuple[list[tuple[str, PushsumUpdate]], float, int]],
) -> None:
    fabric = push_sum("a", ["a", "b", "c"])
    rng = Random(1)
    now_ns = 0
    for updates, value, passed_ns in steps:
        now_ns += passed_ns
        for peer, update in updates:
            fabric.receive(peer, update, now_ns)
        view = fabric.view(now_ns)
        assert math.isfinite(view.remote)
        assert view.remote >= 0
        assert (view.age_ns is None) == (not view.connected)
        targets = fabric.membership.targets(rng)
        for _, update in fabric.publish(value, targets, now_ns):
            assert wire.carried(update) == update
        assert fabric.mass.weight > 0
