"""The cost of a limiter, as the simulator measures it."""

from __future__ import annotations

import sys

import pytest

from testbed.sim.cost import WITNESSES, footprint
from testbed.sim.run import simulate

from ..testbed_factories import experiment

LIMITERS = 40
CHURN = {"limiters": LIMITERS, "most": 3, "every": "20ms", "life": "10s", "rtt": "40ms"}


class Owner:
    __slots__ = ("mine", "ours")

    def __init__(self, mine: object, ours: object) -> None:
        self.mine = mine
        self.ours = ours


def test_memory_is_counted_once_without_shared_parts() -> None:
    inner = [bytes(1000)]
    ours = [bytes(5000)]
    owner = Owner([inner, inner], ours)
    parts = (owner, owner.mine, inner, inner[0])
    assert footprint(owner, [ours]) == sum(map(sys.getsizeof, parts))
    assert footprint(owner, []) == footprint(owner, [ours]) + footprint(ours, [])


def test_costs_are_those_of_a_limiter_that_knows_all_its_peers() -> None:
    """Whether the others of the fleet do or not."""
    found = []
    for known in (False, True):
        gossip = {"fabric": "pushsum", "rtt": "40ms", "known": known}
        fleet = experiment(flows=[], churn=CHURN, detail="fleet", gossip=gossip, costs=True)
        found.append(simulate(fleet, "fps")["costs"])
    whole, part = found
    assert whole["limiters"] == part["limiters"] == WITNESSES
    # Four seconds of three updates each way an interval: all limiters have met.
    assert whole["links"] == part["links"] == LIMITERS - 1
    assert whole["bytes"] == pytest.approx(part["bytes"], rel=0.2)
    assert 10_000 < whole["bytes"] < 1_000_000
    assert all(0 < costs["tick_us"] <= costs["tick_us_p90"] for costs in found)


def test_costs_are_recorded_only_if_asked_for() -> None:
    assert "costs" not in simulate(experiment(), "fps")
