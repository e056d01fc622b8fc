"""Which control messages of a session have come before: the sliding window of RFC 6479.

Theory of operation. The control messages of one direction of a session are counted from 0. With
`newest` the highest number accepted so far, one is

- accepted, if it is ahead of `newest`, or at most `WINDOW` - 1 behind and has not come before: a
  message may be overtaken by so many others;
- refused as `replayed`, if it has come before;
- refused as `late`, if it is further behind, for nobody knows whether it has.

Numbers are 32 bits in serial arithmetic, as those of updates (`drld.gossip.sequence`), where no
message may be overtaken: what is told last is all that counts there.

Invariant: no number is accepted twice, as long as fewer than 2**31 have been sent since.
"""

from __future__ import annotations

from drld.errors import WireError
from drld.gossip.sequence import serial_distance

WINDOW = 64
"""Numbers that are remembered."""
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
            raise WireError("late", f"{-ahead} behind the newest")
        if self._seen >> -ahead & 1:
            raise WireError("replayed", f"number {number} has come before")
        self._seen |= 1 << -ahead
