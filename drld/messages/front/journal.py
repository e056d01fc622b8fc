"""Counts what becomes of a broker's connections, and logs the reasons why they end."""

from __future__ import annotations

import logging
from collections import Counter

from drld.log_event import event

log = logging.getLogger("drld.messages")

REASONS = (
    "accepted",
    "refused",
    "too_slow",
    "malformed",
    "unreachable",
    "server_malformed",
    "taken_over",
    "undelivered",
)
"""The names of the counts. `undelivered` counts messages, all others count connections."""


class Journal:
    """The counts of one broker."""

    def __init__(self, broker: str, counts: Counter[str] | None = None) -> None:
        """Count on from `counts`, or from 0; `broker` is the name of the broker."""
        self._broker = broker
        self.counts: Counter[str] = Counter() if counts is None else counts
        """Counts by reason (`REASONS`)."""

    def note(self, reason: str, claim: str) -> None:
        """Count a reason, and log the claim that explains it."""
        self.counts[reason] += 1
        fields = event(f"broker.{reason}", self._broker, broker=self._broker, reason=claim)
        log.warning("broker %s: %s", self._broker, claim, extra=fields)
