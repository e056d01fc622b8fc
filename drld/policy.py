"""The policy of a limit: what an operator asks for, whatever traffic the limit is about.

Limiter, estimators, allocators, fabrics and digests read only this. The target says which traffic
falls under the limit on one host, and only the plane of that traffic reads it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drld.units import BYTES, Unit

NOTHING: Mapping[str, Any] = {}
"""What a limit leaves out: an empty dictionary for each of ten thousand limits takes memory."""


class Mode(enum.Enum):
    """Whether verdicts are carried out. Datapaths drop and mark packets in `ENFORCE` alone."""

    ENFORCE = "enforce"
    SHADOW = "shadow"
    """The datapath counts its verdicts, and lets all traffic pass."""
    PAUSE = "pause"
    """There is no verdict: the record that a limiter gives its datapath drops nothing."""


@dataclass(frozen=True, slots=True)
class Override:
    """The bucket of a single key that differs from the others."""

    key: tuple[str, ...]
    """A value for each name that makes the keys."""
    rate: int
    """The rate of the key's bucket, tokens/s."""
    burst: int
    """The depth of the key's bucket, tokens."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A bucket for each key: `rate` and `burst` are each key's, and nothing is divided."""

    bucket: str
    """The kind of bucket that the plane keeps and replicates."""
    max_keys: int
    """The most buckets that one limiter keeps."""
    overrides: tuple[Override, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The properties of one limit that all limiters of a fleet use alike."""

    id: int
    """The number of the limit, 1 to 65535; no other limit gets it while the fleet lives."""
    name: str
    rate: int
    """The global limit, tokens/s."""
    burst: int
    """The depth of the single token bucket that the fleet emulates, tokens. "auto" is a number
    here."""
    allocator: str
    parameters: object
    """The allocator's own frozen `Parameters` (drld.allocators.base)."""
    interval_ns: int
    """The estimate interval, ns."""
    ewma: float
    """The weight that history one second old keeps, from 0 (no filter) to below 1."""
    mode: Mode = Mode.ENFORCE
    shares: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """The static share of each limiter. The shares sum to 1; an empty mapping means 1/N for
    each."""
    burst_is_automatic: bool = False
    """Whether `burst` is `drld.burst.automatic_burst` of the rate."""
    excess: enum.Enum | None = None
    """The treatment of traffic above the limit, in the plane's own enumeration. Its values are the
    words of the configuration; None: the plane has no choice."""
    weights: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """Relative weight of each limiter's flows, 0.001 to 1000; limiters not named have 1.
    A flow at a limiter of weight 2 gets twice what a flow at a limiter of weight 1 gets."""
    flow: object = None
    """The definition of a flow in the plane's own type, whose text operators read; None:
    `Target.flow`.

    The policy has it, because the fleet must agree on it: the rate is divided among flows.
    """
    unit: Unit = BYTES
    """The unit of the limit."""
    shared: Mapping[str, object] = field(default_factory=lambda: NOTHING)
    """Further settings that the fleet must agree on, by keys such as `match.per`. Unlike the rest
    of the target they are the same on all hosts."""
    keyed: Keyed | None = None
    """The buckets of a limit with a bucket for each key; None: one rate is divided among the
    limiters. With such buckets, the allocator only tells the fleet the demand, and the plane
    enforces the buckets."""
    written: frozenset[str] | None = field(default=None, compare=False)
    """The keys that the operator wrote, such as `allocator.headroom`; None: all. Limiters compare
    only these (drld.shared_settings). This version of drld chooses the values of the others."""

    @property
    def means(self) -> str:
        """The name of the allocator, or of the kind of buckets, as lists show it."""
        return self.keyed.bucket if self.keyed else self.allocator
