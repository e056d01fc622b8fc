"""Properties of every quantity: writing and reading are inverse, and reading is exact."""

from __future__ import annotations

from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld import units


@given(st.integers(units.BYTES.min_rate, units.BYTES.max_rate))
def test_a_written_rate_reads_back(rate: int) -> None:
    assert units.parse_rate(units.format_rate(rate)) == rate


@given(st.integers(0, 10**17))
def test_a_written_size_reads_back(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size


@given(st.integers(0, 10**17))
def test_a_written_duration_reads_back(duration_ns: int) -> None:
    assert units.parse_duration(units.format_duration(duration_ns)) == duration_ns


@given(
    st.decimals(min_value=Decimal("0.001"), max_value=Decimal(999), places=9),
    st.sampled_from([("bit", 0), ("kbit", 3), ("mbit", 6), ("gbit", 9)]),
)
def test_a_rate_is_read_exactly_or_below_or_refused(number: Decimal, unit: tuple[str, int]) -> None:
    name, power = unit
    with localcontext() as context:
        context.prec = 60
        bits = number.scaleb(power)
    text = f"{number:f}{name}"
    if not units.BYTES.min_rate <= bits // 8 <= units.BYTES.max_rate:
        with pytest.raises(units.QuantityError, match='a rate from "10kbit" to "400gbit"'):
            units.parse_rate(text)
        return
    rate = units.parse_rate(text)
    assert rate * 8 <= bits < (rate + 1) * 8


@given(st.text(max_size=40))
def test_any_text_is_read_as_a_quantity_or_refused(text: str) -> None:
    for parse in (units.parse_rate, units.parse_size, units.parse_duration):
        try:
            value = parse(text)
        except units.QuantityError:
            continue
        assert isinstance(value, int)
        assert value >= 0


@given(st.floats(min_value=-1e15, max_value=1e15))
def test_a_rate_for_people_is_within_half_a_percent(bits_per_s: float) -> None:
    number, unit = units.human_rate(bits_per_s).split(" ")
    factor = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}[unit]
    assert abs(float(number) * factor - bits_per_s) <= 0.00501 * abs(bits_per_s)
