"""Each allocator against the paper's text, corner by corner."""

from dataclasses import replace

import pytest

from drld.allocators.base import Allocator
from drld.capture.kernel_layout import record
from drld.model import GlobalView
from drld.units import BYTES

from ..factories import MBIT, TICK_NS, demand, view
from .allocation import IDLE, LIMIT, allocate, make


@pytest.mark.parametrize(
    ("name", "local", "remote", "fill_rate", "depth"),
    [
        pytest.param("ctb", 20, 99, 10, 75_000, id="ctb is the limit itself"),
        pytest.param("static", 20, 0, 5, 37_500, id="static is its share of rate and depth"),
        pytest.param("static", 20, 99, 5, 37_500, id="static is so whatever is heard"),
        pytest.param("gtb", 4, 3, 7, 75_000, id="gtb drains for the others"),
        pytest.param("gtb", 4, 12, -2, 75_000, id="the fill rate of gtb turns negative"),
    ],
)
def test_the_bucket_of_allocators_without_memory(
    name: str, local: int, remote: int, fill_rate: int, depth: int
) -> None:
    """Rates in Mbit/s."""
    allocation = allocate(make(name), demand(local * MBIT), view(remote * MBIT))
    assert allocation.value == local * MBIT
    assert allocation.local_limit == max(fill_rate, 0) * MBIT
    assert allocation.enforcement.fill_rate == fill_rate * MBIT
    assert allocation.enforcement.depth == depth


def test_static_is_its_share_before_any_peer_is_heard() -> None:
    alone = GlobalView(0, frozenset(), None)
    enforcement = allocate(make("static"), demand(20 * MBIT), alone).enforcement
    assert (enforcement.fill_rate, enforcement.depth) == (5 * MBIT, 37_500)


def test_the_smallest_share_of_a_burst_still_passes_packets() -> None:
    """A packet passes a full bucket, however shallow, but none passes one of no depth."""
    limit = replace(LIMIT, static_rate=125, static_burst=0.4)
    enforcement = make("static").allocate(IDLE, view(0), limit, TICK_NS).enforcement
    assert enforcement.depth == 1
    none = replace(LIMIT, static_rate=0, static_burst=0)
    assert make("static").allocate(IDLE, view(0), none, TICK_NS).enforcement.depth == 0


def test_gtb_drains_no_faster_than_a_datapath_can() -> None:
    allocation = allocate(make("gtb"), demand(4 * MBIT), view(2.0**90))
    assert allocation.enforcement.fill_rate == -(2**53)
    assert record(allocation.enforcement)


def papers_grd() -> Allocator:
    return make("grd", lead=0.0, guard=False)


def test_grd_drops_the_global_excess() -> None:
    allocation = allocate(papers_grd(), demand(4 * MBIT), view(8.5 * MBIT))
    assert allocation.enforcement.drop_probability == pytest.approx(2.5 / 12.5)
    assert allocation.enforcement.depth is None
    assert allocation.value == 4 * MBIT


@pytest.mark.parametrize("remote", [0.0, 6 * MBIT])
def test_grd_drops_nothing_up_to_the_limit(remote: float) -> None:
    assert allocate(make("grd"), demand(4 * MBIT), view(remote)).enforcement.drop_probability == 0


def test_grd_with_a_lead_counts_part_of_the_last_interval_whole() -> None:
    rising = replace(demand(4 * MBIT), instant_rate=9 * MBIT)
    allocation = allocate(make("grd"), rising, view(7 * MBIT))
    assert allocation.value == pytest.approx(5 * MBIT)
    assert allocation.enforcement.drop_probability == pytest.approx(2 / 12)
    assert allocate(papers_grd(), rising, view(7 * MBIT)).value == 4 * MBIT


@pytest.mark.parametrize(
    ("local", "remote", "part"),
    [(12, 4, 0.75), (6, 2, 0.75), (1, 3, 0.5), (0, 16, 0.5), (0, 0, 0.5), (20, 0, 1.0)],
)
def test_grd_is_guarded_by_its_part_of_the_demand_or_its_share(
    local: float, remote: float, part: float
) -> None:
    """Half of the limit is its static share."""
    guarded = make("grd")
    enforcement = allocate(guarded, demand(local * MBIT), view(remote * MBIT)).enforcement
    plain = allocate(papers_grd(), demand(local * MBIT), view(remote * MBIT)).enforcement
    assert enforcement.drop_probability == plain.drop_probability
    assert enforcement.fill_rate == pytest.approx(1.05 * part * 10 * MBIT)
    assert enforcement.depth == pytest.approx(75_000 * part**0.5, abs=1)


def test_the_guard_of_grd_lets_a_flow_begin_where_there_is_no_share() -> None:
    guarded = make("grd")
    for rate in (0.0, 10 * MBIT):
        limit = replace(LIMIT, rate=rate, static_rate=0.0)
        allocation = guarded.allocate(IDLE, view(20 * MBIT), limit, TICK_NS)
        assert allocation.enforcement.fill_rate == 0
        assert allocation.enforcement.depth == 12 * BYTES.item


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("grd", "lead", -0.1),
        ("grd", "lead", 1.1),
        ("fps", "headroom", 0.01),
        ("fps", "saturation", 0.0),
        ("fps", "saturation", 1.5),
        ("fps", "hold_s", -1.0),
        ("fps", "growth", 1.0),
        ("fps", "start_s", -0.1),
        ("fps", "min_weight", 0.0),
        ("fps", "depth_packets", 0),
        ("fps", "reach", 1.09),
        ("fps", "hold_s", 1e300),
        ("fps", "growth", 1e38),
        ("fps", "start_s", 1e300),
        ("fps", "min_weight", 1e300),
        ("fps", "depth_packets", 10_000_000),
    ],
)
def test_bad_parameters_are_refused_by_name(name: str, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"^{field}"):
        make(name, **{field: value})
