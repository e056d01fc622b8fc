"""The conservative rule on push-sum (docs/conservative-rule.md): what it bounds there.

Without loss the local limits sum to the limit; with it to what all have in force, and no bound is
better: nothing keeps a limiter from believing that nobody else wants anything.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.fabrics.pushsum import EPOCH_INTERVALS, PushSum

from ..fleets.events import Event, events, flows, parted, slow
from ..fleets.limiters import FluidFleet
from .conservative import MOST, excess


@given(
    flows=flows,
    events=events,
    seed=st.integers(0, 99),
)
@slow
def test_fps_keeps_to_the_limit_if_nothing_is_lost(
    flows: list[int], events: list[Event], seed: int
) -> None:
    assert excess(FluidFleet("pushsum", flows, seed=seed), events, watched=30) <= MOST


@given(
    flows=flows,
    part=st.integers(0, 4095),
    loss=st.sampled_from([0.05, 0.2, 0.4]),
    seed=st.integers(0, 99),
)
@slow
def test_loss_gives_no_limiter_more_than_the_shares_of_its_part(
    flows: list[int], part: int, loss: float, seed: int
) -> None:
    """Together those that want something have no more than so much each."""
    made = FluidFleet("pushsum", flows, seed=seed, loss=loss)
    made.run(80)
    one = {name for number, name in enumerate(made.names) if part >> number & 1}
    made.cut(parted(made.names, one))
    made.run(made.detection_intervals)
    made.watch()
    made.run(30)
    size = {name: len(one) if name in one else len(flows) - len(one) for name in made.names}
    in_force = sum(size[node.name] / len(flows) for node in made.nodes.values() if node.flows)
    assert made.most <= in_force * MOST


@pytest.mark.parametrize("flows", [[1, 3], [2, 1, 5]])
def test_loss_may_give_every_limiter_all_of_the_limit(flows: list[int]) -> None:
    """Sixteen updates of each link in a row are lost, while all begin the epoch of a minute.

    Nobody has heard of any other in it when it ought to have settled.
    """
    made = FluidFleet("pushsum", flows, seed=1)
    made.run(EPOCH_INTERVALS - 5)
    made.watch()
    made.network.bounded_loss = 1.0
    made.run(16)
    assert made.most == pytest.approx(len(flows), rel=1e-5)


def test_a_cut_takes_mass_from_limiters_that_stay_together() -> None:
    """The limiters lose mass until they notice the cut. A change then counts many times."""
    made = FluidFleet("pushsum", [3, 5, 2], seed=1)
    made.run(80)
    others = made.names[1:]
    made.cut(parted(made.names, set(others)))
    made.run(10)
    weight = 0.0
    for name in others:
        fabric = made.fabric(name)
        assert isinstance(fabric, PushSum)
        weight += fabric.mass.weight
    assert weight < 0.3, "of the two that they had"
