"""How long drld waits for a client that has begun something and does not complete it.

A stranger may connect and say nothing, or send half a frame. Such a client holds a place and memory
of the broker's. So two things have a time limit:

- The opening: everything until the broker has accepted the client (`OPENING_NS`).
- A frame that has begun (`FRAME_NS`). A client may send a large frame slowly, so the limit is wide.
  drld looks at most once in this time. A frame that stands still therefore ends its connection
  after one to two times `FRAME_NS`.
"""

from __future__ import annotations

from collections.abc import Callable

from drld.messages.front.deadlines import Deadline
from drld.messages.front.reactor import OwnReactor
from drld.model import NS_PER_S

OPENING_NS = 10 * NS_PER_S
"""Time for TLS, CONNECT, the connection to the broker and its verdict. Clients wait no longer for
it themselves: paho, gmqtt and nats-py give up after 2 to 10 s."""
FRAME_NS = 60 * NS_PER_S
"""Time for one frame: 300 kB come in this time at 40 kbit/s."""


class Patience:
    """The time limits of one connection."""

    __slots__ = ("_frame", "_give_up", "_opening", "_reactor", "_seen")

    def __init__(self, reactor: OwnReactor, give_up: Callable[[str], None]) -> None:
        """Begin without a limit; `give_up` gets the claim that says what took too long."""
        self._reactor = reactor
        self._give_up = give_up
        self._opening: Deadline | None = None
        self._frame: Deadline | None = None
        self._seen = 0
        """The offset at which the frame began that the next look is about."""

    def open(self) -> None:
        """Limit the time of the opening from now on."""
        self._opening = self._reactor.after(OPENING_NS, self._opens_too_slowly)

    def opened(self) -> None:
        """End the limit of the opening: it is complete, or waits for another connection."""
        self._reactor.cancel(self._opening)

    def frame(self, offset: int, begun: Callable[[], int | None]) -> None:
        """Limit the time of a frame that has begun; at most one frame is looked at.

        Args:
            offset: the frame's first byte in the client's stream.
            begun: returns the offset of the frame that has begun by the next look. It returns
                None if there is none, or if the client cannot go on for a reason of drld's.
        """
        if self._frame is None:
            self._seen = offset
            self._frame = self._reactor.after(FRAME_NS, lambda: self._look(begun))

    def end(self) -> None:
        """End all limits."""
        self.opened()
        self._reactor.cancel(self._frame)

    def _look(self, begun: Callable[[], int | None]) -> None:
        self._frame = None
        offset = begun()
        if offset is None:
            return
        if offset == self._seen:
            self._give_up(f"a frame has not been complete within {FRAME_NS // NS_PER_S} s")
        else:
            self.frame(offset, begun)

    def _opens_too_slowly(self) -> None:
        self._give_up(f"no connection with the broker within {OPENING_NS // NS_PER_S} s")
