"""The last events of the daemon and its fleet, for the page's time line.

The log has them all; here is a bounded number of them, so that a page that is opened after an
event shows it. A peer that changes without end is throttled by `drld.daemon.peer_log`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Literal

from drld.control.schema.live import Event

MOST_EVENTS = 100
"""Some screens of them."""
MOST_CHARACTERS = 300
"""Longest text of an event: a refused file may have thousands of mistakes."""


class EventLog:
    """The last `MOST_EVENTS` events: at most some 50 kB, and no work but when one happens."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._count = 0

    def add(self, kind: Literal["daemon", "reload", "change", "peer", "fault"], text: str) -> None:
        """Add an event that happens now."""
        self._count += 1
        shown = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} ..."
        self._events.append(Event(number=self._count, t=time.time(), kind=kind, text=shown))

    def after(self, number: int) -> Iterator[Event]:
        """The events that are left of those after this number, oldest first."""
        return (event for event in tuple(self._events) if event["number"] > number)
