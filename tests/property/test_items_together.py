"""Items that arrive together are policed as they are one by one."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.estimate.flows import FlowSample
from drld.model import Enforcement
from drld.police.policer import Policer

from ..factories import MS, policy

AMOUNT = st.integers(0, 40_000)
RECORDS = st.builds(
    Enforcement,
    drop_probability=st.sampled_from((0.0, 0.0, 0.0, 0.5, 1.0)),
    fill_rate=st.sampled_from((-50_000, 0, 1_000_000, 10_000_000)),
    depth=st.none() | AMOUNT,
    flow_rate=st.just(0) | st.integers(1, 5_000_000),
    flow_depth=AMOUNT,
    reserve=AMOUNT,
)
BATCHES = st.lists(
    st.tuples(
        st.integers(0, 20 * MS),
        st.integers(0, 3),
        st.lists(st.integers(1, 5_000), min_size=1, max_size=9),
    ),
    max_size=20,
)


def made(record: Enforcement) -> Policer:
    policer = Policer(policy(), record, 0)
    policer.sample = FlowSample(3)
    return policer


def state(policer: Policer) -> object:
    slots = [policer.sample.peek(flow) for flow in range(4)]
    sample = [None if it is None else (it.size, it.hits, it.due_ns) for it in slots]
    return policer.bucket.room, policer.bucket.updated_ns, sample


@given(RECORDS, BATCHES)
def test_items_together_have_the_verdicts_of_single_ones(
    record: Enforcement, batches: list[tuple[int, int, list[int]]]
) -> None:
    together, singly = made(record), made(record)
    rngs, now_ns = (Random(1), Random(1)), 0
    for gap_ns, flow, lengths in batches:
        now_ns += gap_ns
        fills = together.pass_first(flow, lengths, now_ns)
        for place, length in enumerate(lengths):
            verdict = singly.police(flow, length, now_ns, rngs[0])
            if place < len(fills):
                assert verdict
                assert fills[place] == singly.fill(now_ns)
            else:
                assert verdict == together.police(flow, length, now_ns, rngs[1])
        assert state(together) == state(singly)
    assert together.read(now_ns) == singly.read(now_ns)


@pytest.mark.parametrize("flow_rate", [0, 1_000_000])
def test_all_items_that_fit_pass_together(flow_rate: int) -> None:
    record = Enforcement(
        fill_rate=1_000_000, depth=5_000, flow_rate=flow_rate, flow_depth=3_000, reserve=1_000
    )
    assert made(record).pass_first(1, [1_000, 1_000, 500], 0) == [
        (4_000, MS), (3_000, 2 * MS), (2_500, 5 * MS // 2)
    ]  # fmt: skip
    assert len(made(record).pass_first(1, [1_000] * 9, 0)) == (3 if flow_rate else 5)
