"""`fps-paper` against the paper's figure 2, line by line."""

from dataclasses import replace

import pytest

from drld.allocators.base import Allocator
from drld.model import Demand, GlobalView

from ..factories import MBIT, TICK_NS, demand, view
from .allocation import IDLE, allocate, local_limit, make


def papers_fps(local: Demand, remote: GlobalView) -> Allocator:
    """One that has had a first interval with this demand: its local limit is that demand."""
    allocator = make("fps-paper")
    allocate(allocator, IDLE, remote)
    allocate(allocator, replace(local, first=True), remote)
    return allocator


def test_the_papers_weight_is_the_local_limit_over_the_fastest_flow() -> None:
    """Line 6, and not the demand, nor the mean of the flows, nor a drop as evidence."""
    allocator = papers_fps(demand(3 * MBIT, flow_rate=1 * MBIT), view(7))
    local = replace(demand(4 * MBIT, flow_rate=1 * MBIT), fastest_rate=1.5 * MBIT)
    # The average keeps 0.1 a second, of a start that counted whole.
    kept = 0.1 ** (TICK_NS / 1e9)
    weight = (kept * 3 + 3 / 1.5) / (kept + 1)
    allocation = allocate(allocator, local, view(7))
    assert allocation.value == pytest.approx(weight)
    assert allocation.local_limit == pytest.approx(10 * MBIT * weight / (weight + 7))


@pytest.mark.parametrize("drop_ratio", [0.0, 0.5])
def test_the_papers_limit_is_the_demand_below_it_whatever_is_dropped(drop_ratio: float) -> None:
    """Line 9."""
    allocator = papers_fps(demand(3 * MBIT, flow_rate=1 * MBIT), view(7))
    less = demand(2 * MBIT, flow_rate=0.5 * MBIT, drop_ratio=drop_ratio)
    assert local_limit(allocate(allocator, less, view(7), ticks=200)) == pytest.approx(2 * MBIT)


def test_the_papers_first_interval_is_given_its_instantaneous_rate() -> None:
    """The weight of an idle limiter, and so its limit, would otherwise stay zero for ever."""
    allocator = make("fps-paper")
    assert local_limit(allocate(allocator, IDLE, view(7))) == 0
    first = demand(1 * MBIT, flow_rate=1 * MBIT, first=True)
    assert local_limit(allocate(allocator, first, view(7))) == pytest.approx(1 * MBIT)


@pytest.mark.parametrize(("rate", "remote"), [(12 * MBIT, 7.0), (4 * MBIT, 0.0)])
def test_the_paper_counts_flows_where_line_9_has_no_answer(rate: float, remote: float) -> None:
    allocator = make("fps-paper")
    allocate(allocator, IDLE, view(remote))
    local = demand(rate, flow_rate=2 * MBIT, first=True)
    assert allocate(allocator, local, view(remote)).value == pytest.approx(rate / MBIT / 2)


def test_the_papers_weight_stays_while_no_flow_is_sampled() -> None:
    allocator = papers_fps(demand(3 * MBIT, flow_rate=1 * MBIT), view(7))
    assert allocate(allocator, demand(4 * MBIT), view(7)).value == pytest.approx(3)


def test_the_papers_bucket_is_whole_and_lets_a_flow_begin() -> None:
    allocator = make("fps-paper")
    records = [allocate(allocator, IDLE, view(7)).enforcement for _ in range(3)]
    assert {(one.fill_rate, one.depth, one.credit) for one in records} == {(0, 75_000, 18_000)}
    assert len({one.credit_id for one in records}) == 1
    busy = allocate(allocator, demand(3 * MBIT, flow_rate=1 * MBIT, first=True), view(7))
    assert busy.enforcement.depth == 75_000
    assert busy.enforcement.credit_id == records[0].credit_id
    assert allocate(allocator, IDLE, view(7)).enforcement.credit_id != records[0].credit_id


def test_the_papers_flows_that_ignore_drops_talk_their_own_weight_down() -> None:
    """Line 6 takes a flow above its share for a smaller one, again and again, down to nothing."""
    allocator = papers_fps(demand(4 * MBIT, flow_rate=4 * MBIT), view(7))
    limits = [
        local_limit(allocate(allocator, demand(4 * MBIT, flow_rate=4 * MBIT), view(7), ticks=20))
        for _ in range(5)
    ]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] < 0.1 * MBIT
