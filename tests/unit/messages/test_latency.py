"""Access delays: quantiles near the exact ones, in bounded memory, of the last minute."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drld.messages.latency import WINDOW_NS, DelayWindow, Histogram
from drld.model import NS_PER_S
from drld.police.waits import QUANTILES

US = 1000
SECONDS_10 = WINDOW_NS // 6


def quantiles(values: list[int]) -> list[int]:
    found = Histogram()
    for value in values:
        found.add(value)
    return found.quantiles(QUANTILES)


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=300))
def test_quantiles_are_at_most_a_part_of_32_too_large(values: list[int]) -> None:
    ordered = sorted(values)
    for part, found in zip(QUANTILES, quantiles(values), strict=True):
        exact = ordered[int(part * len(values))]
        assert exact <= found <= exact * 33 / 32 + US


def test_delays_of_some_microseconds_are_exact() -> None:
    assert quantiles([5 * US] * 10) == [5 * US] * 3
    assert quantiles([0] * 99 + [7 * US]) == [0, 0, 7 * US]
    assert quantiles([]) == [0, 0, 0]


def test_a_histogram_has_a_bounded_number_of_counts() -> None:
    found = Histogram()
    for exponent in range(90):
        for part in range(200):
            found.add(2**exponent + part * 2**exponent // 200)
    assert found.total == 90 * 200
    assert len(found._counts) < 1700


def test_merged_histograms_are_those_of_all_values() -> None:
    one, two, both = Histogram(), Histogram(), Histogram()
    for value in range(0, 10**7, 12_345):
        (one if value % 2 else two).add(value)
        both.add(value)
    one.merge(two)
    assert one.quantiles(QUANTILES) == both.quantiles(QUANTILES)
    assert one.total == both.total


def test_the_window_forgets_what_is_older_than_a_minute() -> None:
    window = DelayWindow()
    window.turn(0, 0)
    window.add(NS_PER_S)
    for turn in range(1, 6):
        window.turn(turn * SECONDS_10, turn)
    # One in each slot: the first has the one that waited, and one that did not.
    assert window.delays().items == 6
    assert window.delays().quantiles_ns[2] >= NS_PER_S
    window.turn(6 * SECONDS_10 - 1, 6)
    assert window.delays().items == 7
    window.turn(6 * SECONDS_10, 6)
    assert window.delays() == (5, [0, 0, 0])
    # Nothing was read for an hour.
    window.turn(3600 * NS_PER_S, 6)
    assert window.delays() == (0, [0, 0, 0])
    assert len(window._slots) <= 6
