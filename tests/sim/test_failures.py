"""Daemons that die, freeze and restart, several at once: see `tests.sim.failures`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.gossip.fabrics.tree_membership import TreeMembership

from ..factories import TICK_NS
from ..fleets.events import Event, flows, slow
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
