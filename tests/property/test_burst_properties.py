"""Properties of the automatic burst at every rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drld.burst import automatic_burst, is_shallow
from drld.units import BYTES

EDGES = [
    4 * bound + bytes_per_s
    for bound in (BYTES.min_burst, BYTES.max_burst)
    for bytes_per_s in range(-1, 5)
]
RATES = st.integers(BYTES.min_rate, BYTES.max_rate) | st.sampled_from(EDGES)


@given(RATES)
def test_an_automatic_burst_is_a_quarter_of_a_second_within_the_bounds(rate: int) -> None:
    burst = automatic_burst(rate, BYTES)
    assert BYTES.min_burst <= burst <= BYTES.max_burst
    if BYTES.min_burst < burst < BYTES.max_burst:
        assert 4 * burst <= rate < 4 * (burst + 1)
    elif burst == BYTES.min_burst:
        assert rate < 4 * (BYTES.min_burst + 1)
    else:
        assert rate >= 4 * BYTES.max_burst


@given(RATES, RATES)
def test_an_automatic_burst_never_falls_as_the_rate_rises(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert automatic_burst(low, BYTES) <= automatic_burst(high, BYTES)


@given(RATES)
def test_an_automatic_burst_is_never_shallow_and_a_byte_less_is(rate: int) -> None:
    burst = automatic_burst(rate, BYTES)
    assert not is_shallow(burst, rate, BYTES)
    assert is_shallow(burst - 1, rate, BYTES) == (BYTES.min_burst <= rate // 4 <= BYTES.max_burst)
