"""A pair of limiters, of which one has the traffic: what a takeover leaves of the limit."""

from __future__ import annotations

import pytest

from drld.model import NS_PER_S

from ..factories import MBIT, limit_spec
from ..fleets.limiters import PacketFleet

LIMIT = 10 * MBIT
TAKEOVER_S = 10.0


def taken_over(shares: dict[str, float], *, dies: bool) -> PacketFleet:
    """Four flows go by l0, and from the takeover on by l1; l0 may die with it."""
    limit = limit_spec("fair", rate=LIMIT, burst=LIMIT // 4, shares=shares)
    fleet = PacketFleet(limit, 2, seed=1, fabric="tree")
    send, active = fleet.packet, ["l0"]

    def route(name: str, number: int) -> None:
        send(active[-1], number)

    fleet.packet = route  # type: ignore[method-assign]  # by source
    for number in range(4):
        fleet.elastic("the active one", number)
    fleet.run_until(TAKEOVER_S)
    assert fleet.forwarded_bps("l0", TAKEOVER_S / 2) > 0.9 * LIMIT
    active.append("l1")
    if dies:
        fleet.nodes["l0"].kill()
    return fleet


EQUAL: dict[str, float] = {}
ALL_AT_THE_FIRST = {"l0": 1.0, "l1": 0.0}


@pytest.mark.parametrize("shares", [EQUAL, ALL_AT_THE_FIRST])
def test_a_standby_has_the_whole_limit_a_second_after_it_takes_over(
    shares: dict[str, float],
) -> None:
    fleet = taken_over(shares, dies=False)
    fleet.run_until(TAKEOVER_S + 3)
    assert fleet.forwarded_bps("l1", TAKEOVER_S + 1) == pytest.approx(LIMIT, rel=0.1)


@pytest.mark.parametrize(("shares", "part"), [(EQUAL, 0.5), (ALL_AT_THE_FIRST, 0.0)])
def test_a_standby_has_its_static_share_if_the_active_limiter_dies(
    shares: dict[str, float], part: float
) -> None:
    fleet = taken_over(shares, dies=True)
    detection_s = fleet.fabric("l1").detection_ns / NS_PER_S
    fleet.run_until(TAKEOVER_S + detection_s + 5)
    rate = fleet.forwarded_bps("l1", TAKEOVER_S + detection_s)
    assert rate == pytest.approx(part * LIMIT, rel=0.1)
