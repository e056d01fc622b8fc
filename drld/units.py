"""Quantities as people write them: rates, sizes and durations.

A quantity is a decimal number and a unit ("10mbit", "75kB", "1.5 s"). Parsing is exact (integer
arithmetic only) and gives the units of `drld.model`: bytes/s, bytes, nanoseconds. `format_*` is
the inverse of `parse_*`; `human_*` rounds to three digits, for eyes only.

Rates follow tc's notation (kbit, mbit, gbit: decimal, bits). tc also reads "kbps" as kilobytes
per second where other tools read kilobits, so that spelling is refused rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from drld.errors import DrldError

KILO, MEGA, GIGA = 10**3, 10**6, 10**9

MAX_INTEGER = 2**63 - 1
"""Sizes and durations have to fit the 64-bit integers of the kernel's side."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit that a limit counts in. All arithmetic uses integer tokens; one byte is one
    token."""

    name: str
    """The name by which the fleet's limiters distinguish units."""
    item: int
    """A typical item, tokens: no bucket that forwards items may be less deep."""
    min_rate: int
    max_rate: int
    """Bounds of a limit's rate, tokens/s."""
    max_burst: int
    """Bound of a limit's burst, tokens: the largest bucket of the datapaths."""

    @property
    def min_burst(self) -> int:
        """Bound of a limit's burst, tokens: one item passes."""
        return self.item

    def shown_rate(self, rate: float) -> float:
        """Tokens/s as operators read them: bits/s, or items/s of a unit other than bytes."""
        return rate * 8 if self.name == BYTES.name else rate / self.item

    def shown_amount(self, amount: float) -> float:
        """Tokens as operators read them: bytes, or items of another unit."""
        return amount if self.name == BYTES.name else amount / self.item


_BIT_RATES = {"bit": 1, "kbit": KILO, "mbit": MEGA, "gbit": GIGA}
_BYTE_RATES = {"B/s": 8, "kB/s": 8 * KILO, "KB/s": 8 * KILO, "MB/s": 8 * MEGA, "GB/s": 8 * GIGA}
_SIZES = {
    "B": 1,
    "kB": KILO,
    "KB": KILO,
    "MB": MEGA,
    "GB": GIGA,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_DURATIONS = {
    "ns": 1,
    "us": KILO,
    "\N{MICRO SIGN}s": KILO,
    "\N{GREEK SMALL LETTER MU}s": KILO,
    "ms": MEGA,
    "s": GIGA,
    "m": 60 * GIGA,
    "min": 60 * GIGA,
    "h": 3600 * GIGA,
}

# Eighteen digits are more than any bound below lets through; a cap keeps int() cheap.
_QUANTITY = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))? ?([^0-9\s.]\S*)?", re.ASCII)
_AMBIGUOUS_RATE = re.compile(r"([kmg]?)b(ps|/s)", re.ASCII | re.IGNORECASE)


class QuantityError(DrldError, ValueError):
    """A text that is not the quantity asked for; `allowed` says what would be."""

    def __init__(self, text: str, allowed: str) -> None:
        super().__init__(f"{text!r}: {allowed}")
        self.allowed = allowed


def parse_rate(text: str) -> int:
    """Read a rate such as "10mbit", "1.5gbit", "10Mbit/s" or "125kB/s" as bytes/s.

    A fraction of a byte per second is cut off, so that a limit is never above what was asked.

    Raises:
        QuantityError: not a rate, an ambiguous one, or one outside 10 kbit/s to 400 Gbit/s.
    """
    number, unit = split_quantity(text, 'a rate such as "10mbit"')
    factor = _BIT_RATES.get(unit.lower().removesuffix("/s")) or _BYTE_RATES.get(unit)
    if factor is None:
        if ambiguous := _AMBIGUOUS_RATE.fullmatch(unit):
            prefix = ambiguous[1].lower()
            raise QuantityError(
                text,
                f'a rate such as "10mbit"; "{unit}" is ambiguous (tc reads it as bytes, others as '
                f'bits): write "{prefix}bit" or "{prefix if prefix in "k" else prefix.upper()}B/s"',
            )
        raise QuantityError(text, 'a rate such as "10mbit"')
    rate = int(number * factor / 8)
    if not BYTES.min_rate <= rate <= BYTES.max_rate:
        raise QuantityError(text, 'a rate from "10kbit" to "400gbit"')
    return rate


def parse_size(text: str) -> int:
    """Read a size such as "75kB", "1500B" or "64KiB" as bytes.

    Raises:
        QuantityError: not a size, or not a whole number of bytes below 2**63.
    """
    return _whole(text, _SIZES, 'a size in bytes such as "75kB" or "64KiB"', "bytes")


def parse_duration(text: str) -> int:
    """Read a duration such as "50ms", "1.5s" or "2m" (minutes) as nanoseconds.

    Raises:
        QuantityError: not a duration, or not a whole number of nanoseconds below 2**63.
    """
    return _whole(text, _DURATIONS, 'a duration such as "50ms" or "1.5s"', "nanoseconds")


def format_rate(rate: int) -> str:
    """Write bytes/s so that `parse_rate` reads it back exactly."""
    return _exact(rate * 8, _BIT_RATES)


def format_size(size: int) -> str:
    """Write bytes so that `parse_size` reads it back exactly."""
    return _exact(size, {unit: _SIZES[unit] for unit in ("B", "kB", "MB", "GB")})


def format_duration(duration_ns: int) -> str:
    """Write nanoseconds so that `parse_duration` reads it back exactly."""
    return _exact(duration_ns, {unit: _DURATIONS[unit] for unit in ("ns", "us", "ms", "s")})


def human_rate(rate: float, unit: str = "bytes") -> str:
    """Write a rate (`Unit.shown_rate`) for people: `9.56 Mbit/s`, `50 calls/s`."""
    if unit == BYTES.name:
        return _rounded(rate, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"))
    return f"{_items(rate, unit)}/s"


def human_amount(amount: float, unit: str) -> str:
    """Write an amount (`Unit.shown_amount`) for people: `75.0 kB`, `3.05 M calls`."""
    return human_size(amount) if unit == BYTES.name else _items(amount, unit)


def _items(number: float, unit: str) -> str:
    """A number of items, of which there is one, or several: `1 request`, `0 requests`."""
    text = human_number(number)
    return f"{text} {unit.removesuffix('s') if text == '1' else unit}"


def human_size(size: float) -> str:
    """Write bytes for people: `75.0 kB`."""
    return _rounded(size, ("B", "kB", "MB", "GB", "TB"))


def human_number(value: float) -> str:
    """Write a number without a unit for people: `3.05 M`."""
    return _rounded(value, ("", "k", "M", "G")).rstrip()


def human_duration(seconds: float) -> str:
    """Write seconds for people: `50.0 ms`, `2m 05s`, `3d 04h`."""
    if not seconds:
        return "0 s"
    if seconds < 99.95:
        return _rounded(seconds * 1e9, ("ns", "us", "ms", "s"))
    minutes, whole_seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {whole_seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02}m"
    return f"{hours // 24}d {hours % 24:02}h"


def split_quantity(text: str, allowed: str) -> tuple[Fraction, str]:
    """Split a quantity into its exact number and its unit.

    Raises:
        QuantityError: it is none, or has no unit.
    """
    if not (match := _QUANTITY.fullmatch(text.strip())):
        raise QuantityError(text, allowed)
    whole, decimals, unit = match.groups(default="")
    if not unit:
        raise QuantityError(text, f"{allowed}, with its unit")
    return Fraction(int(whole + decimals), 10 ** len(decimals)), unit


def _whole(text: str, units: Mapping[str, int], allowed: str, of: str) -> int:
    number, unit = split_quantity(text, allowed)
    if unit not in units:
        raise QuantityError(text, allowed)
    value = number * units[unit]
    if value.denominator != 1 or value > MAX_INTEGER:
        raise QuantityError(text, f"{allowed}, a whole number of {of} below 2**63")
    return value.numerator


def _exact(value: int, units: Mapping[str, int]) -> str:
    """Write with the largest unit that needs no more than three decimals."""
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if value >= factor and value % max(factor // KILO, 1) == 0:
            whole, rest = divmod(value, factor)
            decimals = f".{rest * KILO // factor:03}".rstrip("0") if rest else ""
            return f"{whole}{decimals}{unit}"
    return f"{value}{next(iter(units))}"


def _rounded(value: float, units: tuple[str, ...]) -> str:
    """Write with three significant digits and the unit that makes that 1 to 999."""
    power = 0
    # Compare what will be shown, so that 999.9 k becomes 1.00 M and not 1000 k.
    while power + 1 < len(units) and float(f"{abs(value):.3g}") >= KILO:
        value /= KILO
        power += 1
    if power == 0:
        return f"{value:.3g} {units[0]}"
    shown = float(f"{abs(value):.3g}")
    decimals = 2 if shown < 10 else 1 if shown < 100 else 0
    return f"{value:.{decimals}f} {units[power]}"


BYTES = Unit(
    name="bytes",
    item=1500,
    min_rate=1250,
    max_rate=50_000_000_000,
    max_burst=4 * 10**9,
)
"""Bytes of packets: the item is a packet of full size; from 10 kbit/s to 400 Gbit/s."""
