"""The size of a bucket, and exact arithmetic for it.

A bucket holds up to `capacity` tokens and gets `rate` tokens each `per_ns`. A token takes
`per_ns / rate` ns, which is not always a whole number. So times inside buckets are *ticks* of
1 / rate ns: a nanosecond has `rate` ticks and a token takes `per_ns` ticks, both whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from drld.model import NS_PER_S

NANO = 10**9
"""The parts of a token in which amounts travel to peers, which may have another rate."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A bucket's capacity and refill."""

    capacity: int
    """The tokens of a full bucket."""
    rate: int
    """The tokens that the bucket gets each `per_ns`."""
    per_ns: int = NS_PER_S
    depth: int = field(init=False, repr=False, compare=False)
    """The ticks in which an empty bucket fills."""

    def __post_init__(self) -> None:
        for name in ("capacity", "rate", "per_ns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1 (got {getattr(self, name)})")
        object.__setattr__(self, "depth", self.capacity * self.per_ns)

    @property
    def fill_ns(self) -> int:
        """The time in which an empty bucket fills, ns, rounded up."""
        return -(-self.depth // self.rate)

    def wait_ns(self, ticks: int) -> int:
        """Return the least number of ns that has this many ticks, at least 0."""
        return max(-(-ticks // self.rate), 0)


class Decision(NamedTuple):
    """The answer to a request."""

    admitted: bool
    retry_after_ns: int = 0
    """The time after which the same request would pass if no other came, ns; 0: it is admitted."""


ADMITTED = Decision(True)
