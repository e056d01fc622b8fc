"""Frames: what the stream of a client of a message broker is cut into.

A frame is a control packet of MQTT, or an operation of NATS with its payload. A message under a
limit is a frame with a topic (NATS: a subject). The other frames say where they belong: most keep
their place behind the messages that wait, and those that answer the broker do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, Protocol

MAX_FRAME = 2 << 20
"""The largest frame that is accepted unless the operator says otherwise, bytes. A nats-server takes
payloads of 1 MiB by default, to which their heads add."""
MAX_HEAD = 1 << 16
"""The largest line of NATS, bytes. Heads of MQTT are bounded by their format."""
CACHED_TOPICS = 8192
"""Topics whose text is remembered, of all connections together."""
CACHED_BYTES = 256
"""The longest of these."""


class Place(Enum):
    """Where a frame may stand among the messages of its connection that wait."""

    KEEPS = "keeps"
    """Behind those before it, as the client sent it."""
    OVERTAKES = "overtakes"
    """At once: the broker or the client waits for it, and no message depends on its place."""


class Frame(NamedTuple):
    """A whole frame of a client."""

    data: bytes
    """As the client sent it; empty: nothing is forwarded."""
    end: int
    """Offset in the client's stream just behind the last byte."""
    topic: str | None
    """Of a message, with topic aliases resolved; None: it is no message."""
    place: Place
    alias: int = 0
    """The topic alias in it (MQTT 5); 0: none. Then `Reader.forward` says what is forwarded."""
    answer: bytes = b""
    """What drld answers in the broker's place: through `Returns.insert`, at once."""


class Client(NamedTuple):
    """What a client says of itself when it connects."""

    id: str
    """MQTT: the client identifier, empty if the broker is to choose one; NATS: its name."""
    user: str | None
    version: int
    """Of the protocol: 4 (MQTT 3.1.1) or 5 (MQTT 5); NATS: as the client says."""
    keep_alive_s: int
    """The longest pause between frames after which the broker keeps the connection; 0: any."""


class Reader(Protocol):
    """The direction from a client to its broker, of one connection."""

    client: Client | None
    """None until the client has connected."""
    offset: int
    """Offset in the client's stream of the first byte that is in no whole frame."""

    @property
    def held(self) -> int:
        """Bytes of a frame that has begun."""
        ...

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete, in their order; take all of them.

        Raises:
            FrameError: what follows the frames is malformed or too large. The connection cannot
                be read further.
        """
        ...

    def forward(self, frame: Frame) -> bytes:
        """What the broker is sent for a frame: `frame.data`, unless it has an alias.

        Frames with an alias come here in the order in which they are forwarded.
        """
        ...

    def drop(self, frame: Frame) -> bytes:
        """Take note that a message is not forwarded.

        Returns:
            The client's acknowledgement, for `Returns.insert`; empty: the protocol has none.
        """
        ...


class Returns(Protocol):
    """The direction from a broker to its client, of one connection."""

    greeted: bool
    """Whether the broker's first frame has passed."""
    accepted: bool
    """Whether the broker has accepted the client."""
    held: int
    """Bytes that `insert` took and that wait for the end of a frame of the broker."""
    pings: int
    """Answers of the broker that the client does not get: drld has sent so many pings of its own
    (`Protocol.ping`)."""

    def feed(self, data: bytes) -> bytes:
        """What the client is sent for these bytes of the broker.

        Raises:
            FrameError: the broker's bytes are no frames.
        """
        ...

    def insert(self, data: bytes) -> bytes:
        """Have a frame of drld's own between the broker's frames, after its first.

        Returns:
            What the client is sent now; empty: `feed` returns it when the place for it comes.
        """
        ...
