"""Frames: what the stream of a client of a message broker is cut into.

A frame is a control packet of MQTT, or an operation of NATS with its payload. A message under a
limit is a frame with a topic (NATS: a subject). Each other frame has a place: most frames stay
behind the messages that wait, and frames that answer the broker do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple, Protocol

from drld.messages.topics import Topic
from drld.model import NS_PER_S

MAX_FRAME = 2 << 20
"""The default of the largest frame, bytes. A nats-server takes payloads of 1 MiB by default, and
their heads come on top."""
MAX_HEAD = 1 << 16
"""The largest line of NATS, bytes. The format of MQTT bounds its heads."""

MAX_NAME = 256
"""The most characters of an identifier or user name that drld keeps. MQTT obliges brokers to take
identifiers of 23."""


class Place(Enum):
    """The place of a frame among the messages of its connection that wait."""

    KEEPS = "keeps"
    """The frame leaves behind the messages that the client sent before it."""
    OVERTAKES = "overtakes"
    """The frame leaves at once: the broker or the client waits for it, and no message depends on
    its place."""


class Frame(NamedTuple):
    """A whole frame of a client."""

    data: bytes
    """The bytes that the client sent; empty: drld forwards nothing."""
    end: int
    """The offset in the client's stream just behind the last byte."""
    topic: Topic | None
    """The topic of a message, with topic aliases resolved; None: the frame is no message."""
    place: Place
    alias: int = 0
    """The topic alias of the message (MQTT 5); 0: it has none. With an alias, `Reader.forward`
    makes the bytes that drld forwards."""
    answer: bytes = b""
    """The bytes that drld answers in the broker's place, at once: through `Returns.insert`."""
    expiry_at: int = 0
    """The offset in `data` of the message expiry interval, 4 bytes, s (MQTT 5); 0: there is
    none."""

    @property
    def topic_text(self) -> str | None:
        """The text of the topic; None: the frame is no message."""
        return None if self.topic is None else self.topic.text

    def aged(self, waited_ns: int) -> Frame | None:
        """The message after it has waited: a server shortens its expiry interval by that time.

        Returns None if the interval is over: the message must not be delivered (MQTT 5, 3.3.2.3.3).
        """
        at = self.expiry_at
        whole_s = int.from_bytes(self.data[at : at + 4], "big")
        left_s = whole_s - waited_ns // NS_PER_S
        if left_s <= 0:
            return None
        if left_s == whole_s:  # Most messages wait for less than a second.
            return self
        data = self.data[:at] + left_s.to_bytes(4, "big") + self.data[at + 4 :]
        return self._replace(data=data)


def kept(name: str) -> str:
    """A client's word about itself, as drld keeps it: if it is long, its digest.

    Strangers choose their words, and drld keeps one for each connection and bucket. The digest is
    behind a zero byte, which no word has that is kept itself.
    """
    if len(name) <= MAX_NAME and "\0" not in name:
        return name
    return "\0digest " + blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class Client(NamedTuple):
    """A client's own words about itself when it connects."""

    id: str
    """MQTT: the client identifier, empty if the broker is to choose it. NATS: the client's name.
    As `kept`."""
    user: str | None
    """The user name, as `kept`; None: the client has said none."""
    version: int
    """The version of the protocol: 4 (MQTT 3.1.1) or 5 (MQTT 5). NATS: the client's number."""
    keep_alive_s: int
    """The longest pause between frames after which the broker keeps the connection, s; 0: any."""
    credentials: bytes | None = None
    """MQTT: a digest of user name and password; two clients without any have the same. None: the
    client proves who it is in another way."""

    def same_credentials(self, other: Client) -> bool:
        """Whether a broker that accepts one of the two would accept the other."""
        return self.credentials is not None and self.credentials == other.credentials


class Reader(Protocol):
    """Cuts the bytes from a client to its broker into frames, for one connection."""

    client: Client | None
    """None until the client has connected."""
    offset: int
    """Offset in the client's stream of the first byte that is in no whole frame."""

    @property
    def held(self) -> int:
        """Bytes of a frame that has begun."""
        ...

    def forget(self) -> None:
        """Free the memory of a frame that has begun; nothing more is fed."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete, in their order; the caller takes all of them.

        Raises:
            FrameError: the bytes behind the frames are malformed, or a frame is too large. The
                connection cannot be read further.
        """
        ...

    def forward(self, frame: Frame) -> bytes:
        """The bytes that the broker gets for a frame: `frame.data`, unless it has an alias.

        Frames with an alias come here in the order in which drld forwards them.
        """
        ...

    def drop(self, frame: Frame) -> bytes:
        """Take in that drld does not forward a message.

        Returns the client's acknowledgement, for `Returns.insert`; empty: the protocol has none.
        """
        ...


class Returns(Protocol):
    """Passes the bytes from a broker to its client, for one connection."""

    greeted: bool
    """Whether the broker's first frame has passed."""
    accepted: bool
    """Whether the broker has accepted the client."""
    held: int
    """Bytes that `insert` has taken, and that wait for the end of a frame of the broker."""
    pings: int
    """The number of drld's own pings (`Protocol.ping`) that the broker has not answered. Their
    answers do not reach the client."""
    stands_in: bool
    """Whether drld answers the broker's pings in the client's place: the client's own answers would
    come too late. Such pings do not reach the client."""
    asked: int
    """The number of these pings that drld has not answered yet."""
    keep_alive_s: int | None
    """The keep-alive that the broker has set in the place of the client's (MQTT 5), s; 0: any
    pause; None: it has set none."""
    assigned_id: str
    """The identifier that the broker has given a client without one (MQTT 5); empty: none."""

    def feed(self, data: bytes) -> bytes:
        """The bytes that the client gets for these bytes of the broker.

        Raises:
            FrameError: the broker's bytes are not frames of its protocol.
        """
        ...

    def insert(self, data: bytes) -> bytes:
        """Put a frame of drld's own between the broker's frames, behind the first one.

        Returns the bytes that the client gets now; empty: `feed` returns them at the next end of a
        frame.
        """
        ...
