"""What holds of the automatic burst at every rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drld import units
from drld.burst import MAX_BURST, MIN_BURST, automatic_burst, is_shallow

EDGES = [
    4 * bound + bytes_per_s for bound in (MIN_BURST, MAX_BURST) for bytes_per_s in range(-1, 5)
]
RATES = st.integers(units.MIN_RATE, units.MAX_RATE) | st.sampled_from(EDGES)


@given(RATES)
def test_it_is_a_quarter_of_a_second_within_the_bounds(rate: int) -> None:
    burst = automatic_burst(rate)
    assert MIN_BURST <= burst <= MAX_BURST
    if MIN_BURST < burst < MAX_BURST:
        assert 4 * burst <= rate < 4 * (burst + 1)
    elif burst == MIN_BURST:
        assert rate < 4 * (MIN_BURST + 1)
    else:
        assert rate >= 4 * MAX_BURST


@given(RATES, RATES)
def test_it_never_falls_as_the_rate_rises(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert automatic_burst(low) <= automatic_burst(high)


@given(RATES)
def test_it_is_never_shallow_and_a_byte_less_is(rate: int) -> None:
    burst = automatic_burst(rate)
    assert not is_shallow(burst, rate)
    assert is_shallow(burst - 1, rate) == (MIN_BURST <= rate // 4 <= MAX_BURST)
