"""Daemons that die, freeze and restart, several at once: see `tests.sim.failures`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.gossip.fabrics.tree_membership import TreeMembership

from ..factories import TICK_NS
from ..fleets.events import Event, flows, parted, slow
from ..fleets.limiters import FluidFleet
from .conservative import MOST
from .failures import FAILURES, LINKS, excess

SAFE = ["mesh", "tree"]

schedules = st.lists(
    st.builds(
        Event,
        after=st.sampled_from([0, 1, 5, 10, 20, 40, 80]),
        what=st.sampled_from([*FAILURES * 4, *LINKS]),
        who=st.integers(0, 11),
        whom=st.integers(0, 4095),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("fabric", SAFE)
@given(
    flows=flows, events=schedules, loss=st.sampled_from([0.0, 0.05, 0.2]), seed=st.integers(0, 99)
)
@slow
def test_failures_exceed_the_limit_by_static_shares_at_most(
    fabric: str, flows: list[int], events: list[Event], loss: float, seed: int
) -> None:
    watch = excess(FluidFleet(fabric, flows, seed=seed, loss=loss), events)
    assert watch.excess <= MOST - 1, watch.at


@given(flows=flows, events=schedules, seed=st.integers(0, 99))
@settings(slow, max_examples=2)
def test_push_sum_keeps_to_the_limit_a_detection_time_after_failures(
    flows: list[int], events: list[Event], seed: int
) -> None:
    watch = excess(FluidFleet("pushsum", flows, seed=seed), events, afterwards=True)
    assert watch.excess <= MOST - 1, watch.at


def test_a_frozen_orphan_does_not_take_its_dead_parent_again() -> None:
    """The updates of the parent, l2, are in the socket of l5 when it continues.

    Once l5 believed them, and was without a parent for 24 intervals more. It found one so late that
    the sum was 1.15 of the limit, a detection time after the last event.
    """
    made = FluidFleet("tree", [2, 0, 1, 30, 2, 2], seed=5, loss=0.05)
    made.run(120)
    membership = made.nodes["l5"].managed.limiter.membership
    assert isinstance(membership, TreeMembership)
    assert membership.parent == "l2"
    made.nodes["l5"].freeze(24 * TICK_NS)
    made.run(5)
    made.nodes["l2"].kill()
    made.run(24)
    assert membership.parent == "l4"


def test_an_orphan_that_joins_another_tree_divides_by_the_demand_of_the_old_one() -> None:
    """The old demand counts until the lost parent is forgotten; the new parent knows one flow.

    Without that, the sum was 1.60 of the limit.
    """
    made = FluidFleet("tree", [30, 30, 30, 30, 30, 1, 30, 30], seed=1)
    made.run(80)
    membership = made.nodes["l0"].managed.limiter.membership
    assert isinstance(membership, TreeMembership)
    assert membership.parent == "l6"
    # l5 hears l0 and no other limiter.
    made.cut(parted(made.names, {"l5"}) - {("l0", "l5"), ("l5", "l0")})
    made.run(made.detection_intervals + 60)
    made.watch()
    made.nodes["l6"].kill()
    made.run(made.detection_intervals)
    assert membership.parent == "l5"
    assert made.most <= MOST + 1 / 8


@pytest.mark.parametrize("returning", ["l1", "l2"])
def test_limiters_that_return_to_their_parent_count_once(returning: str) -> None:
    """Another limiter is dead. Once its share was in force again for a moment: 1.07 in sum."""
    made = FluidFleet("tree", [5] * 9, seed=1)
    made.run(80)
    made.nodes["l3"].kill()
    made.run(made.detection_intervals + 20)
    made.cut(parted(made.names, {returning}))
    made.run(made.detection_intervals + 20)
    made.watch()
    made.cut(())
    made.run(made.detection_intervals + 20)
    assert made.most <= MOST
