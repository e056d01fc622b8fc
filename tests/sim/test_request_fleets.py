"""Fleets that decide requests: the requests that they admit together, by caller."""

from __future__ import annotations

from random import Random

import pytest

from drld.allocators import ALLOCATORS
from drld.capture.plane import packets
from drld.gossip.fabrics import FABRICS
from drld.model import NS_PER_S
from drld.requests.model import Request
from drld.requests.spec import RequestMatch
from testbed.sim.datapath import MemoryDatapath

from ..factories import MBIT, flow, limit_spec
from ..fleets.requests import RequestFleet, request_limit

RNG = Random(1)


def test_callers_at_three_limiters_share_the_limit_by_max_min() -> None:
    """Two of eight callers want 5/s each; the other six share the other 90/s."""
    fleet = RequestFleet([[request_limit(burst=20_000_000)]] * 3)
    modest, greedy = 5, 30
    fleet.callers(fleet.nodes[0], ["m0"], modest)
    fleet.callers(fleet.nodes[0], ["g0"], greedy)
    fleet.callers(fleet.nodes[1], ["m1"], modest)
    fleet.callers(fleet.nodes[1], ["g1", "g2"], greedy)
    fleet.callers(fleet.nodes[2], ["g3", "g4", "g5"], greedy)
    fleet.run(3)
    seconds = 10
    fleet.run(seconds)
    rates = {
        caller: count / seconds for node in fleet.nodes for caller, count in node.admitted.items()
    }
    assert sum(rates.values()) == pytest.approx(100, rel=0.05)
    for caller, rate in rates.items():
        fair = modest if caller.startswith("m") else 15
        assert rate == pytest.approx(fair, rel=0.15), rates


PAIRS = [
    (allocator, fabric)
    for allocator in ALLOCATORS
    for fabric in FABRICS
    if allocator != "ctb" and (allocator, fabric) != ("adaptive", "pushsum")
]
"""The allocators that a fleet of two may have, each with its fabrics (`drld.config.checks`)."""
SETTLE_S = {"adaptive": 14.0}
"""The time in which local limits settle, s: `adaptive` looks at the last 10 s."""


@pytest.mark.parametrize(("allocator", "fabric"), PAIRS)
def test_every_allocator_holds_a_limit_on_requests_over_every_fabric(
    allocator: str, fabric: str
) -> None:
    fleet = RequestFleet([[request_limit(allocator)]] * 2, fabric=fabric)
    fleet.callers(fleet.nodes[0], ["a", "b", "c"], 60)
    fleet.callers(fleet.nodes[1], ["d"], 120)
    fleet.run(SETTLE_S.get(allocator, 2.0))
    fleet.run(5)
    admitted = sum(sum(node.admitted.values()) for node in fleet.nodes) / 500
    # GTB drains a bucket by the requests of others; callers that ignore refusals then get nothing.
    least = 0.0 if allocator == "gtb" else 0.95
    assert least <= admitted <= 1.05


@pytest.mark.parametrize("fabric", ["mesh", "tree"])
def test_three_flows_and_seven_callers_share_a_limit_on_bytes_as_three_to_seven(
    fabric: str,
) -> None:
    """Packets at one limiter and requests at another; a request costs its stated size."""
    shared = {"rate": 10 * MBIT, "burst": 75_000}
    on_packets = limit_spec("fair", **shared)
    on_requests = limit_spec("fair", **shared, match=RequestMatch("api"))
    datapath = MemoryDatapath()
    fleet = RequestFleet([[on_packets], [on_requests]], planes=[packets(datapath)], fabric=fabric)
    passed = [0]

    def send(flow_and_gap: tuple[int, int]) -> None:
        number, gap_ns = flow_and_gap
        policer = datapath.policers[on_packets.id]
        now_ns = fleet.clock.now_ns
        passed[0] += 1500 * bool(policer.police(flow(number), 1500, now_ns, RNG))
        fleet.clock.at(now_ns + gap_ns, send, flow_and_gap)

    for number in range(3):
        fleet.clock.at(number + 1, send, (number, round(1500 * NS_PER_S / (3 * MBIT))))
    callers = [f"caller{number}" for number in range(7)]
    request = Request("api", {}, size=6000)
    fleet.callers(fleet.nodes[1], callers, 3 * MBIT / 6000, request)
    fleet.run(2)
    before = passed[0]
    seconds = 5
    fleet.run(seconds)
    of_packets = (passed[0] - before) / seconds
    of_requests = 6000 * sum(fleet.nodes[1].admitted.values()) / seconds
    assert of_packets + of_requests == pytest.approx(10 * MBIT, rel=0.03)
    assert 10 * of_packets / (of_packets + of_requests) == pytest.approx(3, rel=0.03)


def test_in_a_mixed_fleet_the_limiters_that_have_the_limit_share_all_of_it() -> None:
    """The third limiter has another limit, and hears of this one without harm."""
    limit = request_limit(burst=20_000_000)
    fleet = RequestFleet(
        [[limit], [limit], [limit_spec("fair", id=7, name="packets")]],
        planes=[None, None, packets(MemoryDatapath())],
    )
    for node, names in zip(fleet.nodes, (["a", "b", "c"], ["d"], []), strict=True):
        fleet.callers(node, names, 60)
    fleet.run(5)
    fleet.run(10)
    assert fleet.nodes[2].engine.unknown_limit.keys() == {"l0", "l1"}
    admitted = fleet.nodes[0].admitted + fleet.nodes[1].admitted
    assert sum(admitted.values()) == pytest.approx(1000, rel=0.05)
    assert admitted["d"] == pytest.approx(250, rel=0.15)


def test_a_limiter_that_is_cut_off_admits_its_static_share() -> None:
    limit = request_limit(shares={"l0": 0.2, "l1": 0.8})
    fleet = RequestFleet([[limit]] * 2)
    fleet.network.partition(["l0"], ["l1"])
    for node in fleet.nodes:
        fleet.callers(node, ["a", "b"], 100)
    fleet.run(5)
    fleet.run(10)
    assert [sum(node.admitted.values()) / 10 for node in fleet.nodes] == [
        pytest.approx(20, rel=0.05),
        pytest.approx(80, rel=0.05),
    ]


@pytest.mark.parametrize("allocator", ["static", "grd", "fps", "fair"])
def test_a_debt_is_paid_once_by_time_and_is_no_demand(allocator: str) -> None:
    """The bucket pays it at the local limit; no account, and no other limiter, pays it as well."""
    fleet = RequestFleet([[request_limit(allocator, burst=20_000_000)]] * 2)
    debtor, other = fleet.nodes
    fleet.callers(other, ["a"], 150)
    fleet.callers(debtor, ["b"], 150)
    fleet.run(3)
    fleet.run(3)
    before = other.admitted["a"] / 3
    debtor.ask("b", Request("api", {}, 150, charge=True))
    fleet.run(0.2)
    # A bucket that is in debt goes on to fill.
    assert debtor.ask("b", Request("api", {})).retry_ns == pytest.approx(2.8 * NS_PER_S, rel=0.25)
    fleet.run(0.8)
    # Three seconds of its half of the limit: it admits nothing yet, and the other has its part.
    assert debtor.admitted["b"] == 0
    assert other.admitted["a"] == pytest.approx(before, rel=0.25)
    answer = debtor.ask("b", Request("api", {}))
    assert not answer.admitted
    assert answer.retry_ns is not None
    fleet.run(4)
    assert debtor.admitted["b"] > 0
    fleet.run(3)
    assert debtor.admitted["b"] / 3 == pytest.approx(50, rel=0.3)
