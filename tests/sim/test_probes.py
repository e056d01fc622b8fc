"""Probes in whole fleets on a simulated network: deaths, loss, freezes, partitions, departures."""

from __future__ import annotations

import statistics

import pytest

from drld.gossip.wire.control_codec import State
from drld.model import NS_PER_S
from drld.spec import ProbeSpec
from testbed.sim.network import MS, Conditions
from testbed.sim.probe_fleet import ProbeFleet, false_verdicts

from ..factories import policy

SWIM = ProbeSpec(patience=0, suspicion_max=1.0)
"""SWIM alone, without Lifeguard; buddies and nacks stay, and have no effect on times here."""


def bound_s(fleet: ProbeFleet) -> float:
    """The longest time until all limiters know of a death, if none is slow, s."""
    times = fleet.times
    turns = 2 * len(fleet.names) * times.period_ns
    return (turns + times.period_ns + times.suspicion_max_ns) / NS_PER_S


@pytest.mark.parametrize(("size", "runs"), [(3, 6), (10, 4), (40, 1)])
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_death_is_known_to_all_within_the_formula(size: int, runs: int, loss: float) -> None:
    took = []
    for seed in range(runs):
        fleet = ProbeFleet(size, seed, Conditions(loss=loss))
        fleet.run(10)
        fleet.kill("l0")
        took.append(fleet.run_until(fleet.others("l0"), "l0", State.DEAD, bound_s(fleet)))
        assert fleet.early == []
    least = fleet.times.suspicion_min_ns / NS_PER_S
    # Where packets are lost it may have been suspected before it died.
    assert loss or min(took) >= least
    # 1.6 periods to the first probe, one to judge it, and what confirmations take to come.
    assert statistics.mean(took) < least + 8 * fleet.times.period_ns / NS_PER_S


@pytest.mark.parametrize("size", [2, 10, 40])
def test_without_loss_no_limiter_is_suspected_and_a_quiet_fleet_is_cheap(size: int) -> None:
    fleet = ProbeFleet(size, 1, Conditions(delay_ns=50 * MS, jitter_ns=50 * MS))
    fleet.run(30)
    assert false_verdicts(fleet, State.SUSPECT) == 0
    before = sum(host.sent for host in fleet.hosts.values())
    fleet.run(20)
    sent = sum(host.sent for host in fleet.hosts.values()) - before
    assert sent / size / 20 < 2.3


@pytest.mark.parametrize("loss", [0.2, 0.4])
def test_loss_alone_declares_no_limiter_dead(loss: float) -> None:
    fleet = ProbeFleet(10, 2, Conditions(loss=loss))
    fleet.run(100)
    assert false_verdicts(fleet, State.SUSPECT) > 0
    assert false_verdicts(fleet, State.DEAD) == 0


def suspicions_of_the_healthy(
    spec: ProbeSpec, *, late: float = 0.0, overflow: float = 0.0
) -> tuple[int, int]:
    """How often one in a fleet was suspected, or declared dead, where three others are unwell."""
    fleet = ProbeFleet(10, 4, spec=spec)
    unwell = fleet.names[:3]
    fleet.late = dict.fromkeys(unwell, late)
    fleet.run(10)
    fleet.overloaded = dict.fromkeys(unwell, overflow)
    fleet.run(90)
    states = [change.state for change in fleet.changes if change.peer not in unwell]
    return states.count(State.SUSPECT), states.count(State.DEAD)


def test_a_limiter_that_loses_messages_declares_no_peer_dead_with_lifeguard() -> None:
    suspected, dead = suspicions_of_the_healthy(ProbeSpec(), overflow=0.8)
    plain_suspected, plain_dead = suspicions_of_the_healthy(SWIM, overflow=0.8)
    assert suspected < plain_suspected
    assert dead == 0 < plain_dead


def test_a_limiter_that_runs_late_suspects_no_peer_for_that() -> None:
    suspected, dead = suspicions_of_the_healthy(ProbeSpec(), late=0.1)
    assert (suspected, dead) == (0, 0)


def test_a_limiter_that_was_frozen_doubts_itself_and_declares_no_peer_dead() -> None:
    fleet = ProbeFleet(5, 1)
    fleet.run(10)
    fleet.changes.clear()
    fleet.freeze("l0", 10)
    fleet.run(10)
    thawed = len(fleet.changes)
    fleet.run(10)
    said = [c for c in fleet.changes[thawed:] if c.observer == "l0" and c.state is not State.ALIVE]
    assert said == []
    assert all(fleet.state(name, "l0") is State.ALIVE for name in fleet.others("l0"))
    assert fleet.early == []


def test_a_limiter_that_was_frozen_for_long_is_alive_again() -> None:
    fleet = ProbeFleet(5, 1)
    fleet.run(10)
    fleet.freeze("l0", 40)
    others = fleet.others("l0")
    fleet.run_until(others, "l0", State.DEAD, 40)
    assert fleet.early == []
    fleet.run_until(others, "l0", State.ALIVE, 60)


def test_a_restarted_limiter_is_never_taken_for_dead() -> None:
    fleet = ProbeFleet(8, 1)
    fleet.run(10)
    fleet.kill("l0")
    fleet.run(6)
    fleet.start("l0")
    fleet.run(60)
    assert not [c for c in fleet.changes if c.peer == "l0" and c.state is State.DEAD]
    assert all(fleet.state(name, "l0") is State.ALIVE for name in fleet.others("l0"))


@pytest.mark.parametrize("loss", [0.0, 0.4])
def test_a_departure_is_known_at_once_and_a_return_too(loss: float) -> None:
    fleet = ProbeFleet(20, 1, Conditions(loss=loss))
    fleet.run(20)
    fleet.leave("l0")
    fleet.run_until(fleet.others("l0"), "l0", State.LEFT, 30 if loss else 5)
    fleet.start("l0")
    fleet.run_until(fleet.others("l0"), "l0", State.ALIVE, 30)


def test_both_sides_of_a_partition_find_each_other_again() -> None:
    fleet = ProbeFleet(8, 1)
    fleet.run(10)
    one, other = fleet.names[:3], fleet.names[3:]
    fleet.network.partition(one, other)
    for name in other:
        fleet.run_until(one, name, State.DEAD, 200)
    for name in one:
        fleet.run_until(other, name, State.DEAD, 200)
    fleet.network.heal()
    for name in fleet.names:
        fleet.run_until(fleet.others(name), name, State.ALIVE, 60)


def test_a_limiter_that_is_cut_off_is_isolated_and_declares_no_other_dead() -> None:
    fleet = ProbeFleet(6, 1)
    fleet.run(10)
    fleet.network.partition(["l0"], fleet.names[1:])
    fleet.run(fleet.times.isolation_ns / NS_PER_S + 0.1)
    assert fleet.hosts["l0"].isolated
    fleet.run_until(fleet.others("l0"), "l0", State.DEAD, 60)
    assert fleet.early == []
    states = {fleet.state("l0", name) for name in fleet.others("l0")}
    assert State.DEAD not in states
    fleet.network.heal()
    fleet.run(30)
    assert all(fleet.state(a, b) is State.ALIVE for a in fleet.names for b in fleet.others(a))


def test_a_path_that_is_cut_between_two_alone_makes_neither_dead() -> None:
    fleet = ProbeFleet(5, 1)
    fleet.run(10)
    fleet.network.partition(["l0"], ["l1"])
    fleet.run(60)
    assert false_verdicts(fleet, State.SUSPECT) == 0


def test_limiters_with_other_limits_are_named_by_all() -> None:
    fleet = ProbeFleet(4, 1, limits=(policy(id=1), policy(id=2)))
    fleet.limits["l3"] = (policy(id=1), policy(id=2, rate=999))
    fleet.start("l3")
    fleet.run(30)
    for name in fleet.others("l3"):
        assert fleet.hosts[name].probes.config_digest.disagreements() == {"l3": {2: True}}
    found = fleet.hosts["l3"].probes.config_digest.disagreements()
    assert found == {name: {2: True} for name in fleet.others("l3")}
