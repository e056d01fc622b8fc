"""The beginning of one connection: the client's identifier, and the broker's verdict on it.

The first message waits until the broker has accepted the client, and all frames behind it wait too.
So a client that the broker refuses uses no tokens. Frames that are no messages pass, for the
client's CONNECT is one of them.

The verdict is CONNACK of MQTT. A NATS server says nothing about a CONNECT that it accepts. So drld
sends it a PING behind CONNECT, and keeps the answer from the client. A client that sends its first
message before CONNECT is judged without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from drld.errors import FrameError
from drld.messages.frame import Frame, Place, Returns
from drld.messages.front.client_stream import ClientStream
from drld.messages.front.patience import Patience
from drld.messages.front.shared import Shared
from drld.messages.front.succession import Successive
from drld.messages.gate import Lane

STRANGER_BYTES = 4096
"""Bytes of one read until the broker has accepted the client: they are beside `Memory.held`."""


class Opening:
    """The beginning of one connection."""

    __slots__ = (
        "_asked",
        "_behind",
        "_connection",
        "_lane",
        "_patience",
        "_returns",
        "_shared",
        "_stream",
        "done",
    )

    def __init__(
        self,
        shared: Shared,
        connection: Successive,
        lane: Lane,
        *,
        stream: ClientStream,
        returns: Returns,
        patience: Patience,
    ) -> None:
        """Begin with nothing read; the time of the opening is limited from now on."""
        self._shared = shared
        self._connection = connection
        self._lane = lane
        self._stream = stream
        self._returns = returns
        self._patience = patience
        self._behind = False
        """Whether the CONNECT waits for an older connection of the client."""
        self._asked = False
        """Whether drld has asked the broker for its verdict."""
        self.done = False
        """Whether the client has said its identifier, and the broker has accepted it."""
        patience.open()

    def held_back(self, frame: Frame) -> tuple[Frame, ...]:
        """Take in the next frame.

        Returns the frames that have to wait in the place of this one; empty: it passes.
        """
        lane, shared = self._lane, self._shared
        if (endpoints := self._stream.endpoints) is not None:
            lane.address = endpoints.source[0]
        if lane.client is None and self._stream.reader.client is not None:
            lane.client = self._stream.reader.client
            self._behind = shared.succession.join(self._connection, lane.client)
            if self._behind and shared.succession.trusts(self._connection):
                self._patience.opened()
        if self._behind:
            return (frame,)
        if self._returns.accepted:
            self.done = lane.client is not None
            return ()
        if shared.protocol.asks_for_verdict and not self._asked:
            self._asked = True
            self._returns.pings += 1
            ping = Frame(shared.protocol.ping, frame.end, None, Place.KEEPS)
            shared.pump.unfinished(self._connection)
            return (frame, ping) if frame.topic is None else (ping, frame)
        return (frame,) if frame.topic is not None else ()

    def succeed(self) -> None:
        """Go on with the CONNECT: no frame of the older connection waits any more."""
        self._behind = False
        self._patience.open()
        self._shared.pump.unfinished(self._connection)

    def accepted(self) -> None:
        """End the limit of the opening's time: the broker has accepted the client."""
        self._patience.opened()
        if id_ := self._returns.assigned_id:
            self._shared.succession.assign(self._connection, id_)


def more_than_connect(frames: Iterator[Frame]) -> Iterator[Frame] | None:
    """The same frames, of which the first is CONNECT; None: no other whole frame follows."""
    connect = next(frames)
    try:
        second = next(frames, None)
    except FrameError:
        return None
    return None if second is None else chain((connect, second), frames)
