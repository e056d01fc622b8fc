"""A tail loss probe (RFC 8985, section 7): one segment that asks for news of the last ones.

If the last segments of a window are lost, no acknowledgement shows it. The sender then sends one
segment: a new one, or the last one again. The acknowledgement of a repeated one tells a loss that
the probe itself repaired from a segment that came twice.
"""

from __future__ import annotations

from testbed.tcp.digest import Digest
from testbed.tcp.receiver import Ack


class LossProbe:
    """The probe of a sender, from its sending until its acknowledgement."""

    __slots__ = ("_again", "_end")

    def __init__(self) -> None:
        self._end: int | None = None
        """The next segment when the probe was sent; None: no probe is under way."""
        self._again = False
        """Whether the probe repeated a segment."""

    @property
    def pending(self) -> bool:
        """Whether a probe is under way."""
        return self._end is not None

    def sent(self, end: int, *, again: bool) -> None:
        """Note that a probe was sent; `end` is the next segment after it."""
        self._end, self._again = end, again

    def forget(self) -> None:
        """Give up the probe, because a recovery or a timeout has begun."""
        self._end = None

    def repaired(self, ack: Ack, news: Digest) -> bool:
        """Whether this acknowledgement shows that the probe repaired an unnoticed loss.

        The window must then be reduced (tcp_process_tlp_ack()).
        """
        if self._end is None or ack.next_ < self._end:
            return False
        if not self._again or ack.duplicate is not None:
            self._end = None
        elif ack.next_ > self._end:
            return True
        elif not news.advanced and not news.sacked:
            self._end = None
        return False
