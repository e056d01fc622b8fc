"""Quantities as people write them, and what is refused and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drld import units
from drld.errors import DrldError


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10mbit", 1_250_000),
        ("1.5gbit", 187_500_000),
        ("800kbit", 100_000),
        ("10kbit", units.BYTES.min_rate),
        ("10001bit", 1_250),
        ("100gbit", 12_500_000_000),
        ("400gbit", units.BYTES.max_rate),
        ("10Mbit", 1_250_000),
        ("10 Mbit/s", 1_250_000),
        (" 10mbit ", 1_250_000),
        ("125kB/s", 125_000),
        ("125KB/s", 125_000),
        ("1.25MB/s", 1_250_000),
        ("50GB/s", units.BYTES.max_rate),
        ("1250B/s", units.BYTES.min_rate),
        ("0.01mbit", units.BYTES.min_rate),
    ],
)
def test_a_rate_is_read_as_bytes_per_second(text: str, rate: int) -> None:
    assert units.parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("75kB", 75_000),
        ("75KB", 75_000),
        ("1500B", 1500),
        ("64KiB", 65_536),
        ("1MB", 1_000_000),
        ("1.5 kB", 1500),
        ("2GB", 2_000_000_000),
        ("1MiB", 2**20),
        ("0.5GiB", 2**29),
        ("0B", 0),
    ],
)
def test_a_size_is_read_as_bytes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("50ms", 50_000_000),
        ("10s", 10_000_000_000),
        ("1.5s", 1_500_000_000),
        ("2m", 120_000_000_000),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("250us", 250_000),
        ("250\N{MICRO SIGN}s", 250_000),
        ("250\N{GREEK SMALL LETTER MU}s", 250_000),
        ("7ns", 7),
        ("0s", 0),
        ("0.1s", 100_000_000),
    ],
)
def test_a_duration_is_read_as_nanoseconds(text: str, duration_ns: int) -> None:
    assert units.parse_duration(text) == duration_ns


NOT_QUANTITIES = [
    "",
    " ",
    "ten",
    "10mbot",
    "-10mbit",
    "+10mbit",
    "1e6bit",
    "10,5mbit",
    "10.mbit",
    ".5mbit",
    "1_000bit",
    "10  mbit",
    "10mbit 5",
    "\N{ARABIC-INDIC DIGIT ONE}mbit",
    "9" * 5000 + "mbit",
    "1." + "9" * 5000 + "mbit",
    "inf",
    "nan",
    "0x10bit",
    "10\nmbit",
]


@pytest.mark.parametrize("text", NOT_QUANTITIES)
@pytest.mark.parametrize("parse", [units.parse_rate, units.parse_size, units.parse_duration])
def test_a_text_that_is_no_quantity_is_refused(parse: Callable[[str], int], text: str) -> None:
    with pytest.raises(units.QuantityError):
        parse(text)


SIZE = 'a size in bytes such as "75kB" or "64KiB"'
DURATION = 'a duration such as "50ms" or "1.5s"'
WHOLE_NS = "a whole number of nanoseconds below 2**63"


def ambiguous(unit: str, bits: str, size: str) -> str:
    return (
        f'a rate such as "10mbit"; "{unit}" is ambiguous (tc reads it as bytes, others as bits): '
        f'write "{bits}" or "{size}"'
    )


@pytest.mark.parametrize(
    ("parse", "text", "allowed"),
    [
        (units.parse_rate, "10mbot", 'a rate such as "10mbit"'),
        (units.parse_rate, "10", 'a rate such as "10mbit", with its unit'),
        (units.parse_rate, "0mbit", 'a rate from "10kbit" to "400gbit"'),
        (units.parse_rate, "9999bit", 'a rate from "10kbit" to "400gbit"'),
        (units.parse_rate, "400.1gbit", 'a rate from "10kbit" to "400gbit"'),
        (units.parse_rate, "50.000000001GB/s", 'a rate from "10kbit" to "400gbit"'),
        (units.parse_rate, "10kbps", ambiguous("kbps", "kbit", "kB/s")),
        (units.parse_rate, "10Mbps", ambiguous("Mbps", "mbit", "MB/s")),
        (units.parse_rate, "10Mb/s", ambiguous("Mb/s", "mbit", "MB/s")),
        (units.parse_rate, "10bps", ambiguous("bps", "bit", "B/s")),
        (units.parse_size, "75", f"{SIZE}, with its unit"),
        (units.parse_size, "75kb", SIZE),
        (units.parse_size, "75kbit", SIZE),
        (units.parse_size, "1.5B", f"{SIZE}, a whole number of bytes below 2**63"),
        (units.parse_size, "9223372036854775808B", SIZE),
        (units.parse_duration, "999999999999999999h", f"{DURATION}, {WHOLE_NS}"),
        (units.parse_duration, "50", f"{DURATION}, with its unit"),
        (units.parse_duration, "50MS", DURATION),
        (units.parse_duration, "0.5ns", f"{DURATION}, {WHOLE_NS}"),
    ],
)
def test_a_refusal_names_the_allowed_values(
    parse: Callable[[str], int], text: str, allowed: str
) -> None:
    with pytest.raises(units.QuantityError) as caught:
        parse(text)
    assert caught.value.allowed == allowed
    assert str(caught.value) == f"{text!r}: {allowed}"
    assert isinstance(caught.value, DrldError)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (1, "8bit"),
        (units.BYTES.min_rate, "10kbit"),
        (1_250_000, "10mbit"),
        (187_500_000, "1.5gbit"),
        (1_250_001, "10000.008kbit"),
        (units.BYTES.max_rate, "400gbit"),
    ],
)
def test_rates_are_written_shortly(rate: int, text: str) -> None:
    assert units.format_rate(rate) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0B"), (75_000, "75kB"), (65_536, "65.536kB")])
def test_sizes_are_written_shortly(size: int, text: str) -> None:
    assert units.format_size(size) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (50_000_000, "50ms"),
        (1_500_000_000, "1.5s"),
        (120 * 10**9, "120s"),
        (1_000_001, "1000.001us"),
    ],
)
def test_durations_are_written_shortly(duration_ns: int, text: str) -> None:
    assert units.format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("bits_per_s", "text"),
    [
        (0, "0 bit/s"),
        (12.34, "12.3 bit/s"),
        (999.4, "999 bit/s"),
        (999.6, "1.00 kbit/s"),
        (9_560_000, "9.56 Mbit/s"),
        (-9_560_000, "-9.56 Mbit/s"),
        (10_000_000, "10.0 Mbit/s"),
        (99_960_000, "100 Mbit/s"),
        (999_600, "1.00 Mbit/s"),
        (100_000_000_000, "100 Gbit/s"),
        (1_234_000_000_000, "1234 Gbit/s"),
    ],
)
def test_rates_for_people_have_three_digits(bits_per_s: float, text: str) -> None:
    assert units.human_rate(bits_per_s) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (75_000, "75.0 kB"), (1_500_000, "1.50 MB"), (3e15, "3000 TB")],
)
def test_sizes_for_people_have_three_digits(size: float, text: str) -> None:
    assert units.human_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00025, "250 us"),
        (0.05, "50.0 ms"),
        (1.5, "1.50 s"),
        (99.9, "99.9 s"),
        (99.96, "1m 40s"),
        (125, "2m 05s"),
        (3599.6, "1h 00m"),
        (3 * 3600 + 240, "3h 04m"),
        (12 * 86400 + 3 * 3600, "12d 03h"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert units.human_duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 calls"), (1, "1 call"), (0.999, "0.999 calls"), (2e6, "2.00 M calls")],
)
def test_items_are_written_in_singular_and_plural(number: float, text: str) -> None:
    assert units.human_amount(number, "calls") == text
    assert units.human_rate(number, "calls") == f"{text}/s"
