"""The publishers of SRTM's papers (2021, section VI). Pure; seeded.

All publishers send at the same mean rate, in batches of messages that leave at the same moment.
Times are independent Poisson processes, or periodic with a random phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from drld.model import NS_PER_S

RATE = 10
"""Messages/s of a publisher, in all experiments of the papers."""


class Burst(NamedTuple):
    """The messages that one publisher sends at once."""

    at_ns: int
    publisher: int
    messages: int


@dataclass(frozen=True, slots=True)
class Publishers:
    """A topic's publishers."""

    count: int
    periodic: bool = False
    batch: int = 1

    def bursts(self, rng: Random, duration_ns: int) -> list[Burst]:
        """The publishers' messages, by time."""
        return sorted(
            Burst(at_ns, publisher, self.batch)
            for publisher in range(self.count)
            for at_ns in self._times(rng, duration_ns)
        )

    def _times(self, rng: Random, duration_ns: int) -> Iterator[int]:
        gap_ns = self.batch * NS_PER_S / RATE
        at_ns = rng.random() * gap_ns if self.periodic else rng.expovariate(1 / gap_ns)
        while at_ns < duration_ns:
            yield int(at_ns)
            at_ns += gap_ns if self.periodic else rng.expovariate(1 / gap_ns)


def arrivals(bursts: list[Burst]) -> list[int]:
    """The times of the single messages."""
    return [burst.at_ns for burst in bursts for _ in range(burst.messages)]
