"""A case of messages with real brokers, as data."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.messages.case import Case
from testbed.messages.real.frames import Protocol


@dataclass(frozen=True, slots=True)
class RealCase(Case):
    """`seconds` and `warm_s` are those of the case in virtual time: a run takes `dilate` times as
    long."""

    protocol: Protocol = "nats"
    dilate: int = 10

    @property
    def depth(self) -> int:
        """Burst of the envelope, messages; the case must state it."""
        assert self.burst is not None
        return self.burst
