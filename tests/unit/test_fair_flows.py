"""The allocator `fair`: the buckets of single flows, the reserve, and crowds."""

import pytest

from drld.allocators.base import INITIAL_WINDOW_ITEMS
from drld.allocators.fair_flows import CROWD_LOSS, CROWD_PASS, RESERVE
from drld.units import BYTES

from ..factories import TICK_NS
from ..fair_factories import LIMIT, believed, demand, greedy, in_force, make, sampled, settled


def test_flow_buckets_are_for_two_flows_and_more() -> None:
    assert settled(greedy(1), remote=3).enforcement.flow_rate == 0
    assert settled(greedy(1), remote=3, rest=LIMIT).enforcement.flow_rate > 0
    two = settled(greedy(2), remote=2).enforcement
    assert two.flow_rate == pytest.approx(LIMIT / 4, rel=1e-3)
    assert two.depth is not None
    assert 0 < two.reserve < two.depth


def test_flow_buckets_are_filled_at_the_level_of_what_the_limiter_may_forward() -> None:
    """A slow flow leaves the rest to the others."""
    enforced = settled([*greedy(2), sampled(0.01 * LIMIT)], remote=2).enforcement
    assert 2 * enforced.flow_rate + 0.011 * LIMIT == pytest.approx(enforced.fill_rate, rel=1e-3)


@pytest.mark.parametrize("offered", [0.2, 0.24, 0.3], ids=["below", "at", "above"])
def test_a_large_flow_leaves_what_others_want_and_what_it_offers_above_the_level(
    offered: float,
) -> None:
    """The level is 0.24 of the limit; the other flow wants 0.011 of it."""
    flows = [sampled(offered * LIMIT, hit=True), sampled(0.01 * LIMIT)]
    remote = (1 - 0.24 - 0.011) / 0.24
    found = settled(flows, remote, limit=in_force(burst=LIMIT)).enforcement
    assert found.depth is not None
    left = 0.011 + max(offered - 0.24, 0)
    first_window = INITIAL_WINDOW_ITEMS * BYTES.item
    expected = left / (left + 0.24) * found.depth + first_window
    assert found.reserve == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("rates", [(0.5, 0.01), (0.2, 0.2)], ids=["flood", "equal-flows"])
def test_a_flood_and_equal_flows_leave_half_of_the_bucket(rates: tuple[float, ...]) -> None:
    flows = [sampled(rate * LIMIT, hit=True) for rate in rates]
    found = settled(flows, remote=3, limit=in_force(burst=LIMIT)).enforcement
    assert found.depth is not None
    assert found.reserve == round(RESERVE * found.depth)
    assert found.reserve > 10 * INITIAL_WINDOW_ITEMS * BYTES.item


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (CROWD_LOSS, 0.0),
        (1.2 * CROWD_LOSS, 2 * (1 - 1 / 1.2)),
        (2 * CROWD_PASS, 0.5),
        (5 * CROWD_PASS, 0.8),
    ],
)
def test_a_crowd_far_above_the_limit_loses_packets_at_random(
    offered: float, expected: float
) -> None:
    """The traffic of 64 flows, and of many more outside the sample, at a limiter without peers."""
    crowd = [sampled(0.001 * LIMIT) for _ in range(64)]
    found = settled(crowd, remote=0, rest=(offered - 0.064) * LIMIT).enforcement
    assert found.drop_probability == pytest.approx(expected, abs=1e-3)


def test_flows_that_are_all_sampled_lose_none_at_random() -> None:
    """The same holds with a few flows outside the sample, as `CROWD_COPIES` says."""
    few = [sampled(LIMIT) for _ in range(4)]
    assert settled(few, remote=0).enforcement.drop_probability == 0
    assert settled(few, remote=0, rest=LIMIT).enforcement.drop_probability == 0


def test_an_outlier_counts_with_what_its_bucket_passes() -> None:
    """The outlier sends as much as the crowd, three times the limit."""
    crowd = [sampled(0.001 * LIMIT) for _ in range(63)]
    found = settled([*crowd, sampled(3 * LIMIT)], remote=0, rest=3 * LIMIT).enforcement
    assert found.flow_rate < LIMIT
    offered = 3.063 * LIMIT + found.flow_rate
    assert found.drop_probability == pytest.approx(1 - CROWD_PASS * LIMIT / offered, abs=1e-3)


def test_a_crowd_that_left_is_forgotten_in_half_a_second() -> None:
    fair, crowd = make(), [sampled(0.001 * LIMIT) for _ in range(64)]
    drops = [
        fair.allocate(
            demand(*crowd, rest=3 * LIMIT, instant_rate=rate * LIMIT),
            believed(0.0, told=100.0),
            in_force(),
            TICK_NS,
        ).enforcement.drop_probability
        for rate in [3.0] * 20 + [0.5] * 10
    ]
    assert drops[19] > 0.5
    assert drops[-1] == 0
