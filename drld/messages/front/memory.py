"""The memory of the frames that wait at one broker.

`hold` bounds what waits for a broker: messages without tokens, frames that have begun, and bytes
that a socket does not take. Each connection may use as much as is free of it. This is the dynamic
threshold of shared-memory switches (Choudhury and Hahne, 1998). A single connection so gets at most
half of `hold`, and n connections that all want more get 1/(n+1) of it each. A part always stays
free, so that drld always reads a client whose messages do not wait.

A frame that has begun cannot wait for its connection's part: it would never be complete. So drld
reads on while `hold` is not used up. Then it reads no client with such a frame, and ends those that
make no progress (`drld.messages.front.patience`). Clients that the broker has not accepted yet have
no more than their parts, so strangers alone never use up `hold`.

A client that does not read drld's own answers is not read either, or they would have no bound.
"""

from __future__ import annotations

MOST_QUEUED = 1 << 16
"""Bytes that a socket has not taken: above it drld does not read their source."""


class Memory:
    """The bytes that all connections of a broker hold."""

    __slots__ = ("held", "hold")

    def __init__(self, hold: int) -> None:
        """Hold nothing yet; `hold` is the bound in bytes."""
        self.hold = hold
        self.held = 0
        """Bytes that are held now."""

    @property
    def part(self) -> int:
        """The bytes that one connection may hold now."""
        return max(self.hold - self.held, 0)


class Share:
    """The memory that one connection holds."""

    __slots__ = ("_held", "_memory", "paused")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held = 0
        """The bytes of this connection that `Memory.held` counts."""
        self.paused = False
        """Whether drld does not read the client, because its frames take too much memory."""

    def count(self, held: int) -> bool:
        """Count all bytes that the connection holds now; return whether they have changed."""
        if held == self._held:
            return False
        self._memory.held += held - self._held
        self._held = held
        return True

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
        if up or begun or queued or self.paused:
            half, part = self.paused, self._memory.part
            too_much = up > part >> half or queued > MOST_QUEUED >> half
            self.paused = too_much or (begun > 0 and not part)
