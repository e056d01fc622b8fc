from drld.allocators.burst_need import HOLD_NS, BurstNeed
from drld.model import NS_PER_S


def paused() -> BurstNeed:
    need = BurstNeed()
    assert need.update(0, 0, NS_PER_S) == 0
    return need


def burst(need: BurstNeed, arrived: float) -> float:
    """A burst and a pause, each of an interval with 1,000 bytes of fill."""
    need.update(arrived, 1_000, NS_PER_S // 20)
    return need.update(0, 1_000, NS_PER_S // 20)


def test_traffic_of_the_first_interval_is_no_burst() -> None:
    """A datapath that outlived its daemon may have counted for hours."""
    need = BurstNeed()
    assert need.update(2_000_000, 0, NS_PER_S) == 0
    assert need.settled


def test_a_burst_counts_as_far_as_an_earlier_one_was_as_large() -> None:
    need = paused()
    assert burst(need, 30_000) == 0
    assert burst(need, 5_000) == 4_000
    assert burst(need, 9_000) == 8_000
    assert burst(need, 90_000) == 29_000


def test_bursts_are_remembered_for_one_to_two_windows() -> None:
    need = paused()
    burst(need, 5_000)
    assert burst(need, 5_000) == 4_000
    silent_s = 0
    while need.update(0, 1_000, NS_PER_S):
        assert not need.settled
        silent_s += 1
    assert HOLD_NS <= silent_s * NS_PER_S <= 2 * HOLD_NS
    assert need.settled


def test_bursts_a_window_apart_are_learned_and_those_two_windows_apart_are_not() -> None:
    for apart_s, learned in ((HOLD_NS // NS_PER_S, 4_000.0), (2 * HOLD_NS // NS_PER_S + 1, 0.0)):
        need = paused()
        for _ in range(3):
            found = need.update(5_000, 1_000, NS_PER_S)
            for _ in range(apart_s - 1):
                need.update(0, 1_000, NS_PER_S)
        assert found == learned


def test_traffic_that_stays_above_the_fill_rate_is_one_burst() -> None:
    need = paused()
    burst(need, 90_000)
    assert need.update(3_000, 1_000, NS_PER_S) == 2_000
    assert need.update(90_000, 1_000, NS_PER_S) == 2_000
    assert need.update(1_000, 1_000, NS_PER_S) == 2_000
    assert need.update(4_500, 1_000, NS_PER_S) == 3_500


def test_traffic_within_the_fill_rate_needs_nothing() -> None:
    need = paused()
    assert [need.update(999, 1_000, NS_PER_S) for _ in range(20)] == [0.0] * 20
    assert need.settled
