"""The replay window of a session: it accepts each control message once (RFC 6479).

Theory of operation. The control messages of one direction of a session are counted from 0. `newest`
is the highest number accepted so far. A message is

- accepted, if it is ahead of `newest`, or new and at most `WINDOW` - 1 behind, because the network
  may reorder messages;
- refused as `replayed`, if it has come before;
- refused as `late`, if it is further behind: the window does not know whether it has come.

Numbers are 32 bits in serial arithmetic, as those of updates (`drld.gossip.wire.sequence`). Updates
have no window: only the latest update matters.

Invariant: no number is accepted twice, as long as fewer than 2**31 have been sent since.
"""

from __future__ import annotations

from drld.errors import WireError
from drld.gossip.wire.sequence import serial_distance

WINDOW = 64
"""The number of remembered numbers."""
_MASK = (1 << WINDOW) - 1


class ReplayWindow:
    """The receiving end of one direction of a session."""

    __slots__ = ("_newest", "_seen")

    def __init__(self) -> None:
        self._newest: int | None = None
        self._seen = 0
        """Bit i: the number i below the newest has come."""

    def check_untrusted(self, number: int) -> None:
        """Accept a number, or refuse it.

        Raises:
            WireError: with the reason `replayed` or `late`.
        """
        if self._newest is None:
            self._newest, self._seen = number, 1
            return
        ahead = serial_distance(number, self._newest)
        if ahead > 0:
            self._newest = number
            self._seen = ((self._seen << ahead) & _MASK if ahead < WINDOW else 0) | 1
            return
        if -ahead >= WINDOW:
            raise WireError("late", f"number {number} is {-ahead} behind the newest")
        if self._seen >> -ahead & 1:
            raise WireError("replayed", f"number {number} has come before")
        self._seen |= 1 << -ahead
