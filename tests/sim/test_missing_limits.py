"""A limit that one limiter of the fleet does not have, whatever the fabric."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drld.gossip.fabrics import FABRICS
from drld.spec import LimiterSpec

from ..factories import with_policy
from ..fleets.limiters import FluidFleet
from .conservative import MOST

SIZE = 6


class PartialFleet(FluidFleet):
    """Limiters with a flow each, but for one, which has another limit and no traffic."""

    def __init__(self, fabric: str, without: str) -> None:
        self.without = without
        flows = [int(f"l{number}" != without) for number in range(SIZE)]
        super().__init__(fabric, flows, seed=1)

    def spec(self, name: str) -> LimiterSpec:
        spec = super().spec(name)
        if name != self.without:
            return spec
        return replace(spec, limits=(with_policy(self.limit, id=2, name="other"),))


@pytest.mark.parametrize("without", [f"l{number}" for number in range(SIZE)])
@pytest.mark.parametrize("fabric", FABRICS)
def test_limiters_share_a_limit_that_one_between_them_does_not_have(
    fabric: str, without: str
) -> None:
    fleet = PartialFleet(fabric, without)
    fleet.run(80 + fleet.detection_intervals)
    fleet.watch()
    fleet.run(60)
    assert 0.99 < fleet.least <= fleet.most <= MOST


def test_nothing_is_known_of_a_foreign_limit_without_demand() -> None:
    fleets = [PartialFleet("tree", f"l{number}") for number in range(SIZE)]
    relayed = []
    for fleet in fleets:
        fleet.run(80)
        relays = fleet.nodes[fleet.without].engine.relays
        relayed.append(len(relays))
        for node in fleet.nodes.values():
            node.fluid.flows = 0
        fleet.run(200)
        assert not len(relays)
    assert relayed == [1] * SIZE


def test_a_limiter_that_gets_the_limit_takes_part_itself() -> None:
    for number in range(SIZE):
        fleet = PartialFleet("tree", f"l{number}")
        fleet.run(80)
        node = fleet.nodes[fleet.without]
        fleet.without = ""
        node.fluid.flows = 5
        node.reload()
        assert not len(node.engine.relays)
        fleet.run(80 + fleet.detection_intervals)
        assert fleet.passes(node.name) == pytest.approx(0.5, rel=0.01)
        assert fleet.in_force() <= MOST
