"""Other limiters on an interface: its packets must pass the limits of all of them.

Two daemons of a host have limits on the same interface. Or a daemon was killed, and the next one
has another name: programs and rules of the old name stay, and still police.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from drld.errors import printable
from drld.log_event import event
from drld.police.direction import Direction

log = logging.getLogger(__name__)

_SOCKETS = Path("/proc/thread-self/net/unix")

CLAIM = "drld/"
"""Beginning of the abstract socket that a running daemon holds, before the limiter's name."""

BOTH = "a packet must pass the limits of both"
ONE = "with iptables, a packet meets the limits of one of them alone"
"""The effects of two limiters on an interface. A packet that one of them accepts leaves the
built-in chain of iptables, so it never comes to the rules of the other."""

NO_DAEMON = " without a daemon"
"""Words for a limiter whose daemon died and left its programs or rules."""


def running() -> list[str]:
    """Names of the limiters with a daemon in this network namespace."""
    try:
        with _SOCKETS.open(encoding="utf-8", errors="replace") as sockets:
            # An abstract name begins with a zero byte, which this file shows as @.
            parts = [line.rstrip("\n").partition(f" @{CLAIM}") for line in sockets]
    except OSError:
        return []
    return [name for _, found, name in parts if found]


class OtherLimiters:
    """Logs each other limiter on an interface once, until it has gone."""

    def __init__(self) -> None:
        self._logged: set[tuple[str, Direction, str]] = set()

    def log(self, found: Iterable[tuple[str, Direction, str]], effect: str = BOTH) -> None:
        """Log those of these that are new: interface, direction, and text about the limiter.

        `effect` says what that means for a packet.
        """
        there = set(found)
        for interface, direction, other in sorted(there - self._logged, key=str):
            name = printable(interface)
            log.warning(
                "%s %s: %s polices it too: %s",
                *(name, direction.value, other, effect),
                extra=event("interface.shared", name, interface=name, other=other),
            )
        self._logged = there
