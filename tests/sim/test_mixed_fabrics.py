"""A fleet whose limiters are configured with different fabrics: they share the limit as parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drld.gossip.fabrics import FABRICS

from ..factories import gossip_spec
from ..fleets.limiters import FluidFleet

MIXED = [(most, odd) for most in FABRICS for odd in FABRICS if most != odd]


@pytest.mark.parametrize(("most", "odd"), MIXED)
@pytest.mark.parametrize("victim", ["l0", "l3"])
def test_a_limiter_with_another_fabric_is_on_its_own(most: str, odd: str, victim: str) -> None:
    fleet = FluidFleet(most, [3, 3, 3, 3], seed=1)
    fleet.run(100)
    engine = fleet.nodes[victim].engine
    engine.reconfigure(replace(engine.spec, gossip=gossip_spec(odd)), fleet.now_ns)
    fleet.run(300)
    fleet.watch()
    fleet.run(100)
    assert fleet.most <= 1.0001
    assert fleet.least >= 0.95
    for name, node in fleet.nodes.items():
        others = [victim] if name != victim else [peer for peer in fleet.names if peer != victim]
        assert node.engine.disagreements() == {peer: ["[gossip]"] for peer in others}
    assert sum(node.mailbox.rejected["fabric"] for node in fleet.nodes.values()) > 0
