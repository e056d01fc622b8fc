"""A recording of the arrivals of a limit's messages, for a profile, in bounded memory."""

from __future__ import annotations

from array import array

from drld.messages.gate import Fate, Lane, Queue, Stage

MOST = 200_000
"""The most arrivals that wait to be taken, 1.6 MB: those of ten seconds at 20,000 a second."""


class Recording:
    """Arrivals that have not been taken yet."""

    __slots__ = ("_arrivals", "_last_ns", "_most", "missed")

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._arrivals = array("q")
        self._last_ns = 0
        self.missed = 0
        """Arrivals for which there was no room."""

    def add(self, now_ns: int) -> None:
        """Record an arrival; one that is earlier than the last one gets the time of that one."""
        if len(self._arrivals) >= self._most:
            self.missed += 1
            return
        self._last_ns = max(self._last_ns, now_ns)
        self._arrivals.append(self._last_ns)

    def take(self) -> list[int]:
        """Take out the recorded arrivals, ns."""
        taken, self._arrivals = self._arrivals, array("q")
        return taken.tolist()


class RecordedStage:
    """A limit whose arrivals are recorded (`drld.messages.gate.Stage`)."""

    __slots__ = ("_recording", "_stage")

    def __init__(self, stage: Stage, recording: Recording) -> None:
        self._stage = stage
        self._recording = recording

    def enter(self, lane: Lane, now_ns: int) -> Fate | Queue:
        """See `Stage.enter`."""
        self._recording.add(now_ns)
        return self._stage.enter(lane, now_ns)
