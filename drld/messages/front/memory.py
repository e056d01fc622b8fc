"""The memory of the frames that wait at one broker.

`hold` bounds what waits for a broker: messages without tokens, frames that have begun, and bytes
that a socket does not take. Each connection may use as much as is free of it. This is the dynamic
threshold of shared-memory switches (Choudhury and Hahne, 1998). A single connection so gets at most
half of `hold`, and n connections that all want more get 1/(n+1) of it each. A part always stays
free, so that drld always reads a client whose messages do not wait.

A frame that has begun cannot wait for its connection's part: it would never be complete. So drld
reads on while `hold` is not used up. Then such clients *stall*, except one, whose frame is
completed beyond `hold`. When that frame has left, it is the turn of another one. So large frames
pass, though messages that wait take all of `hold`. Memory that comes free ends all stalls. drld
ends clients that make no progress (`drld.messages.front.patience`). Clients that the broker has not
accepted yet have no more than their parts, so strangers alone never use up `hold`.

A client that does not read drld's own answers is not read either, or they would have no bound.
"""

from __future__ import annotations

from collections.abc import Callable

MOST_QUEUED = 1 << 16
"""Bytes that a socket has not taken: above it drld does not read their source."""


class Memory:
    """The bytes that all connections of a broker hold."""

    __slots__ = ("beyond", "held", "hold", "stalled")

    def __init__(self, hold: int) -> None:
        """Hold nothing yet; `hold` is the bound in bytes."""
        self.hold = hold
        self.held = 0
        """Bytes that are held now."""
        self.beyond: Share | None = None
        """The connection whose frame may be completed beyond `hold`."""
        self.stalled: dict[Share, None] = {}
        """The connections that wait for memory to complete a frame, in their order."""

    @property
    def part(self) -> int:
        """The bytes that one connection may hold now."""
        return max(self.hold - self.held, 0)

    def wake(self) -> None:
        """Let the connections that stall decide again."""
        for share in reversed(self.stalled):  # The pump settles the last one first.
            share.resume()


class Share:
    """The memory that one connection holds."""

    __slots__ = ("_begun", "_held", "_memory", "_spent", "paused", "resume")

    def __init__(self, memory: Memory, resume: Callable[[], None]) -> None:
        """Hold nothing yet; `resume` is called when `decide` may decide otherwise."""
        self._memory = memory
        self._begun = 0
        """The bytes of a frame that had begun at the last decision."""
        self._spent = False
        """Whether a frame has been completed since this connection could go beyond `hold`."""
        self.resume = resume
        self._held = 0
        """The bytes of this connection that `Memory.held` counts."""
        self.paused = False
        """Whether drld does not read the client, because its frames take too much memory."""

    def count(self, held: int) -> bool:
        """Count all bytes that the connection holds now; return whether they have changed."""
        if held == self._held:
            return False
        memory, less = self._memory, held < self._held
        memory.held += held - self._held
        self._held = held
        if less and memory.stalled and memory.part:
            memory.wake()
        return True

    def end(self) -> None:
        """Hold nothing any more."""
        self._memory.stalled.pop(self, None)
        self.count(0)
        self._leave()

    def decide(self, up: int, begun: int, queued: int) -> None:
        """Decide whether drld reads the client.

        A paused client is read again at half of the bounds, so that it does not flap.

        Args:
            up: bytes of frames that wait, and of output for the broker; of a client that the broker
                has not accepted, those of a frame that has begun, too.
            begun: bytes of a frame that has begun.
            queued: bytes of output that the broker has not taken, or of drld's answers that the
                client has not taken, whichever are more.
        """
        memory = self._memory
        if not (up or begun or queued or self.paused or memory.beyond is self):
            return
        self._spent = self._spent or begun < self._begun
        self._begun = begun
        half, part = self.paused, memory.part
        too_much = up > part >> half or queued > MOST_QUEUED >> half
        lacks = begun > 0 and not part
        self.paused = too_much or (lacks and not self._goes_beyond())
        if lacks and self.paused:
            memory.stalled[self] = None
        else:
            memory.stalled.pop(self, None)
        if part or not (up or (begun and not self._spent)):
            self._leave()

    def _goes_beyond(self) -> bool:
        """Whether the frame that has begun may be completed beyond `hold`."""
        memory = self._memory
        if memory.beyond is None:
            memory.beyond = self
            self._spent = False
        return memory.beyond is self and not (self._spent and memory.stalled)

    def _leave(self) -> None:
        """Let another connection go beyond `hold`, if this one could."""
        if self._memory.beyond is self:
            self._memory.beyond = None
            self._memory.wake()
