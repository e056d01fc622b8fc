"""The memory of the frames that wait at one broker.

`hold` bounds what waits for a broker: messages without tokens, frames that have begun, and bytes
that a socket does not take. Each connection may use as much as is free of it. This is the dynamic
threshold of shared-memory switches (Choudhury and Hahne, 1998). A single connection so gets at most
half of `hold`, and n connections that all want more get 1/(n+1) of it each. A part always stays
free, so that drld always reads a client whose messages do not wait.

A frame that has begun cannot wait for its connection's part: it would never be complete. So drld
reads on while `hold` is not used up. Then it reads no client with such a frame, and ends those that
make no progress (`drld.messages.front.patience`).
"""

from __future__ import annotations


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
