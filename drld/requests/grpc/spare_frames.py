"""The frames of a client that complete no call: pings, settings, windows, resets, parts of calls.

They cost the server about as much as a call does, and ask for nothing. So they have a pace of their
own, and complete calls allow more of them. Pure.
"""

from __future__ import annotations

from drld.requests.grpc.bounds import FRAMES_OF_CALL, SPARE_FRAMES, SPARE_FRAMES_PER_S


class SpareFrames:
    """A bucket of such frames; times are seconds."""

    def __init__(self, now: float) -> None:
        self._left = float(SPARE_FRAMES)
        self._counted_at = now

    def count(self, now: float) -> None:
        """Count a frame that completes no call."""
        refill = (now - self._counted_at) * SPARE_FRAMES_PER_S
        self._left = min(self._left + refill, SPARE_FRAMES) - 1
        self._counted_at = now

    def completed(self) -> None:
        """Allow the frames of a complete call."""
        if self._left < SPARE_FRAMES:
            self._left = min(self._left + FRAMES_OF_CALL, SPARE_FRAMES)

    @property
    def exceeded(self) -> bool:
        """Whether the client has sent more frames than it may."""
        return self._left < 0
