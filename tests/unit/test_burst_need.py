"""The burst that traffic with pauses needs at once."""

from drld.allocators.burst_need import HOLD_NS, BurstNeed
from drld.model import NS_PER_S


def paused() -> BurstNeed:
    need = BurstNeed()
    assert need.update(0, 0, NS_PER_S) == 0
    return need


def test_traffic_of_the_first_interval_is_no_burst() -> None:
    """A datapath that outlived its daemon may have counted for hours."""
    assert BurstNeed().update(2_000_000, 0, NS_PER_S) == 0


def test_the_largest_burst_is_remembered_for_one_to_two_windows() -> None:
    need = paused()
    assert need.update(5_000, 1_000, NS_PER_S) == 4_000
    silent_s = 0
    while need.update(0, 1_000, NS_PER_S):
        silent_s += 1
    assert HOLD_NS <= silent_s * NS_PER_S <= 2 * HOLD_NS
    assert need.peak == 0


def test_traffic_that_stays_above_the_fill_rate_is_one_burst() -> None:
    need = paused()
    assert need.update(3_000, 1_000, NS_PER_S) == 2_000
    assert need.update(90_000, 1_000, NS_PER_S) == 2_000
    assert need.update(1_000, 1_000, NS_PER_S) == 2_000
    assert need.update(4_500, 1_000, NS_PER_S) == 3_500


def test_traffic_within_the_fill_rate_needs_nothing() -> None:
    need = paused()
    assert [need.update(999, 1_000, NS_PER_S) for _ in range(20)] == [0.0] * 20
