"""Push-sum: compensation of losses, safety against any input."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.fabrics.pushsum import PushSum
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT, PushsumUpdate
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32
from drld.model import Quantity

from .. import wire
from ..factories import TICK_NS
from ..fleets.fabrics import fabric


def push_sum(names: str) -> PushSum:
    """The fabric of `a` among these."""
    made = fabric("pushsum", "a", names, branching=2)
    assert isinstance(made, PushSum)
    return made


@given(
    arriving=st.lists(st.booleans(), min_size=10, max_size=60),
    value=st.integers(-(10**9), 10**9),
)
def test_lost_shares_come_with_the_next_update(arriving: list[bool], value: int) -> None:
    """What has come is what was given up to the newest update, while gaps are short."""
    made = push_sum("ab")
    newest = gap = 0
    for sequence, arrives in enumerate(arriving, start=1):
        gap += 1
        if arrives or gap == 8:
            sums = to_float32(sequence * value), sequence / 4
            made.receive("b", wire.pushsum(1, sequence - 1, *sums), 0)
            newest, gap = sequence, 0
            assert made.mass.weight == 1 + newest / 4
            assert made.mass.value == pytest.approx(sums[0], abs=1e-3)


hostile = st.builds(
    wire.pushsum,
    limit_id=st.just(1),
    sequence=st.one_of(st.integers(0, 30), st.integers(0, 2**32 - 1)),
    quantity=st.sampled_from(Quantity),
    epoch=st.integers(0, 15),
    value=st.floats(-MAX_VALUE, MAX_VALUE, width=32),
    weight=st.floats(0, MAX_WEIGHT, width=32),
)


@given(
    steps=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("bc"), hostile), max_size=4),
            st.floats(0, MAX_VALUE),
            st.integers(0, 3 * TICK_NS),
        ),
        min_size=8,
        max_size=25,
    )
)
def test_the_fabric_stays_sane_under_any_updates(
    steps: list[tuple[list[tuple[str, PushsumUpdate]], float, int]],
) -> None:
    made = push_sum("abc")
    rng = Random(1)
    now_ns = 0
    for updates, value, passed_ns in steps:
        now_ns += passed_ns
        for peer, update in updates:
            made.receive(peer, update, now_ns)
        view = made.view(now_ns)
        assert math.isfinite(view.remote)
        assert view.remote >= 0
        assert (view.age_ns is None) == (not view.connected)
        targets = made.membership.targets(rng)
        for _, update in made.publish(value, targets, now_ns):
            assert wire.carried(update) == update
        assert made.mass.weight > 0
