"""Fleets of limiters whose shares follow the messages (`adaptive`), in virtual time."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest import mock

import pytest

from drld.allocators import ALLOCATORS
from drld.allocators.adaptive import PROFILE, Adaptive
from drld.allocators.base import Allocation, InForce
from drld.model import NS_PER_S, Demand, GlobalView

from ..factories import TICK_NS
from ..fleets.messages import BURST, RATE, MessageFleet

WINDOW_S = 12
"""The window of the history, with a step that has begun and one that ends."""
ROUNDING = 1e-6


def news_s(fleet: MessageFleet) -> float:
    """D: how old news may be when it is used."""
    last = fleet.nodes["l0"].managed.last
    assert last is not None
    return last.view.news_ns / NS_PER_S


class Newest(Adaptive):
    """Uses its newest claims in place of the least ones that it told."""

    def allocate(
        self, demand: Demand, view: GlobalView, limit: InForce, interval_ns: int
    ) -> Allocation:
        assert view.second is not None
        newest = replace(view, told=1e15, second=replace(view.second, told=1e15))
        return super().allocate(demand, newest, limit, interval_ns)


@pytest.mark.parametrize(("allocator", "kept"), [(Adaptive, True), (Newest, False)])
def test_a_fleet_without_the_rule_exceeds_the_limit(allocator: type[Adaptive], kept: bool) -> None:
    with mock.patch("drld.limiter.ALLOCATORS", {**ALLOCATORS, "adaptive": allocator}):
        fleet = MessageFleet([400, 150, 150, 150, 150], seed=3)
        fleet.run(10)
    if kept:
        assert max(fleet.most) <= 1 + ROUNDING
    else:
        assert min(fleet.most) > 1.3


def test_shares_follow_the_publishers_and_never_exceed_the_limit() -> None:
    fleet = MessageFleet([400, 150, 150, 150, 150], seed=3, loss=0.2)
    fleet.run(25)
    assert fleet.rate_parts == pytest.approx([0.4, *[0.15] * 4], abs=0.02)
    fleet.move("l0", "l1", 0.8)
    fleet.run(WINDOW_S + news_s(fleet))
    assert fleet.rate_parts == pytest.approx([0.08, 0.47, 0.15, 0.15, 0.15], abs=0.02)
    fleet.nodes["l4"].kill()
    fleet.run(3)
    assert sum(fleet.rate_parts) == pytest.approx(0.8, abs=0.02)
    fleet.nodes["l4"].revive()
    fleet.run(5)
    assert fleet.rate_parts == pytest.approx([0.08, 0.47, 0.15, 0.15, 0.15], abs=0.03)
    assert fleet.most == pytest.approx([1, 1], abs=ROUNDING)


@pytest.mark.parametrize("seed", range(3))
def test_no_moment_has_more_than_the_limit_in_a_fleet_with_faults(seed: int) -> None:
    rng = Random(seed)
    fleet = MessageFleet([rng.choice([0, 20, 200, 600]) for _ in range(4)], seed=seed, loss=0.2)
    dead = ""
    for _ in range(10):
        if dead:
            fleet.nodes[dead].revive()
            dead = ""
        what = rng.choice(["move", "move", "kill", "cut", "heal"])
        one, other = rng.sample(fleet.names, 2)
        if what == "move":
            fleet.move(one, other, rng.choice([0.2, 0.8, 1.0]))
        elif what == "kill":
            dead = one
            fleet.nodes[one].kill()
        elif what == "cut":
            fleet.cut({(one, other), (other, one)})
        else:
            fleet.cut(())
        fleet.run(2 + rng.random())
    assert max(fleet.most) <= 1 + ROUNDING


def test_a_tree_keeps_to_the_limit_while_its_shape_stays() -> None:
    fleet = MessageFleet([600, 100, 100, 100, 50, 50, 0], seed=5, fabric="tree", loss=0.2)
    fleet.run(15)
    fleet.move("l0", "l6", 0.8)
    fleet.run(15)
    assert fleet.rate_parts[6] == pytest.approx(PROFILE * 480 / RATE, abs=0.03)
    assert max(fleet.most) <= 1 + ROUNDING


def test_a_fleet_that_starts_at_once_has_its_rate() -> None:
    """Claims that others know of and that do not count yet leave enough to all."""
    fleet = MessageFleet([RATE / PROFILE / 5] * 5, seed=2)
    least = 1.0
    for _ in range(100):
        fleet.run(0.1)
        least = min(least, sum(fleet.rate_parts))
    assert least > 0.9
    assert all(node.holds.p99_ms(0) < 1_000 for node in fleet.nodes.values())


FLOOD = 10 * RATE
HOLD = 300
"""Messages that wait at a flooded limiter, then its publishers are held back."""


def flooded(before: list[float], flooded: list[float], batch: int = 1) -> MessageFleet:
    """A fleet, 40 s after its rates have changed; floods come in batches."""
    fleet = MessageFleet(before, seed=6)
    fleet.run(10)
    for node, rate in zip(fleet.nodes.values(), flooded, strict=True):
        node.holds.rate = rate
        if rate == FLOOD:
            node.holds.room, node.holds.batch = HOLD, batch
    fleet.run(40)
    return fleet


@pytest.mark.parametrize("batch", [1, 200])
@pytest.mark.parametrize("peers", [300, 440])
def test_a_flooded_limiter_keeps_its_part_and_its_peers_theirs(peers: float, batch: int) -> None:
    """The peers want less than their static shares, or more."""
    fleet = flooded([300, 300, 300], [FLOOD, peers, peers], batch)
    for _ in range(10):
        fleet.run(1)
        flood, *others = fleet.rate_parts
        assert flood > 0.32
        assert min(others) > min(peers / RATE, 0.32)
    assert max(fleet.most) <= 1 + ROUNDING


def test_floods_at_all_limiters_leave_them_their_static_shares() -> None:
    fleet = flooded([800, 100, 100], [FLOOD] * 3)
    assert fleet.rate_parts == pytest.approx([1 / 3] * 3, abs=0.01)
    assert max(fleet.most) <= 1 + ROUNDING


def test_a_flood_takes_what_idle_peers_leave_until_it_ends() -> None:
    fleet = flooded([300, 50, 50], [FLOOD, 50, 50])
    assert fleet.rate_parts[0] > 0.6
    fleet.nodes["l0"].holds.rate = 300
    fleet.nodes["l1"].holds.rate = 600
    fleet.run(WINDOW_S + 2 * news_s(fleet))
    assert fleet.rate_parts == pytest.approx([0.3, 0.6, 0.06], abs=0.05)
    assert max(fleet.most) <= 1 + ROUNDING


def test_an_idle_fleet_comes_to_rest_with_its_static_shares() -> None:
    fleet = MessageFleet([100, 0, 0], seed=4)
    fleet.run(5)
    fleet.nodes["l0"].holds.rate = 0
    fleet.run(20)
    for name in fleet.names:
        rate, depth = fleet.in_force(name)
        assert rate == pytest.approx(1 / 3)
        assert depth == pytest.approx(1 / 3)
        assert fleet.nodes[name].managed.limiter.quiescent
    sent = fleet.network.sent
    fleet.run(5)
    # Heartbeats, and nothing else.
    assert fleet.network.sent - sent <= 6 * (5 * NS_PER_S // TICK_NS + 1)
    assert min(fleet.in_force(name)[1] for name in fleet.names) * BURST > 1
