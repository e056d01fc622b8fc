"""A study of a topic's publishers and brokers as data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from drld.messages.envelope import MARGIN
from testbed.messages.arrivals import RATE, Publishers


@dataclass(frozen=True, slots=True)
class Case:
    """Publishers that are spread evenly over k idle brokers, each with a k-th of the envelope."""

    publishers: int
    periodic: bool = False
    batch: int = 1
    brokers: tuple[str, ...] = ("1", "2", "3", "4", "5", "6")
    repeat: int = 5
    seconds: float = 60.0
    """Measured."""
    warm_s: float = 10.0
    """Before that."""
    burst: int | None = None
    """Burst of the envelope, messages; None: it is profiled, on a trace of its own."""

    @property
    def sources(self) -> Publishers:
        """The topic's publishers."""
        return Publishers(self.publishers, self.periodic, self.batch)

    @property
    def rate(self) -> Fraction:
        """Rate of the envelope, messages/s."""
        return MARGIN * self.publishers * RATE
