"""MQTT 3.1.1 and 5: the control packets of a client.

drld reads of a PUBLISH only the fields that limits need: QoS, topic, packet identifier and topic
alias. Of other packets it checks the kind, the flags and the length; the broker judges the rest.

Topic aliases (MQTT 5, 3.3.2.3.4). A client defines an alias once and then leaves the topic out. The
broker does not know an alias whose definition was dropped. So the reader follows which aliases the
broker knows, and puts the topic back into the first message that uses another one.

Dropped messages. QoS 0 has no acknowledgement. For QoS 1 drld sends PUBACK, and for QoS 2 PUBREC.
In MQTT 5 they have the reason 0x97, Quota exceeded, which also ends the exchange of QoS 2. A client
that goes on nevertheless (paho) gets its PUBCOMP from the broker. MQTT 3.1.1 has no reasons: the
client believes that its message was delivered. It goes on with PUBREL. The reader answers this with
PUBCOMP, because the broker knows nothing of the message. It may know one with the DUP flag, from an
earlier connection, and publishes it at PUBREL. So this PUBREL goes to the broker. Acknowledgements
may leave in another order than their messages came: only clients must keep the order (4.6).

Repeated messages. With MQTT 3.1.1 a client may repeat a message in one connection. The broker
ignores that for QoS 2 until PUBREL. A repetition that has waited would come behind PUBREL, and be a
new message. So the reader leaves it out: the first one will be acknowledged. gmqtt repeats messages
without the DUP flag when it has sent them before CONNACK. The reader knows these by their content.
MQTT 5 permits no repetitions, but gmqtt makes the same. There a broker may have ended the exchange
by a reason, and then the identifier belongs to a new message. So the reader leaves nothing out, and
PUBREL keeps its place behind the repetition.
"""

from __future__ import annotations

from collections.abc import Iterator

from drld.errors import FrameError
from drld.messages.frame import MAX_FRAME, Client, Frame, Place
from drld.messages.mqtt_packet import (
    MQTT_5,
    QUOTA_EXCEEDED,
    Cursor,
    body,
    connect,
    head_length,
    topic_of,
    varint,
)
from drld.messages.topics import Topic, TopicCache

MAX_CONNECT = 1 << 18
"""The largest CONNECT, bytes."""
MAX_ALIAS_BYTES = 1 << 20
"""The most memory of a connection's aliases, bytes; each counts as its topic and `ALIAS_BYTES`."""
ALIAS_BYTES = 128
"""The memory of an alias beside its topic, bytes."""
MAX_UNRELEASED = 1024
"""The most messages of QoS 2 without PUBREL that a connection remembers, some 100 kB: all 65,535
identifiers would take 7 MB. Brokers have far fewer under way (mosquitto: 20)."""

_CONNECT, _PUBLISH, _PUBREC, _PUBREL, _DISCONNECT, _AUTH = 1, 3, 5, 6, 14, 15
_NAMES = {
    _CONNECT: "CONNECT", _PUBLISH: "PUBLISH", 4: "PUBACK", _PUBREC: "PUBREC", _PUBREL: "PUBREL",
    7: "PUBCOMP", 8: "SUBSCRIBE", 10: "UNSUBSCRIBE", 12: "PINGREQ", _DISCONNECT: "DISCONNECT",
    _AUTH: "AUTH",
}  # fmt: skip
"""The packets that a client may send."""
_FLAGS = {_PUBREL: 2, 8: 2, 10: 2}
_KEEPS, _OVERTAKES = Place.KEEPS, Place.OVERTAKES
_PLACES = dict.fromkeys((4, _PUBREC, _PUBREL, 7, 12, _AUTH), _OVERTAKES)
_MALFORMED, _TOO_LARGE = b"\xe0\x01\x81", b"\xe0\x01\x95"
"""DISCONNECT of MQTT 5 with the reasons Malformed packet and Packet too large."""
_make = Frame._make


class MqttReader:
    """Cuts the stream from a client to its broker into packets (`drld.messages.frame.Reader`)."""

    __slots__ = (
        "_alias_bytes",
        "_aliases",
        "_dropped",
        "_known",
        "_max_frame",
        "_needed",
        "_repeated",
        "_rest",
        "_topics",
        "_unreleased",
        "client",
        "offset",
    )

    def __init__(self, max_frame: int = MAX_FRAME, topics: TopicCache | None = None) -> None:
        """See `ReaderFactory`."""
        self.client: Client | None = None
        self._topics = TopicCache(topic_of) if topics is None else topics
        self._max_frame = max_frame
        self._rest = bytearray()
        """The beginning of a frame."""
        self._needed = 2
        """The number of bytes that `_rest` must have before another look at it can help."""
        self.offset = 0
        """See `Reader.offset`."""
        self._aliases: dict[int, Topic] = {}
        """The topics of the aliases that the client has defined."""
        self._alias_bytes = 0
        self._known: dict[int, str] = {}
        """The topics of the aliases that the broker knows."""
        self._dropped: set[int] = set()
        """The identifiers of dropped messages of QoS 2 that wait for PUBREL."""
        self._unreleased: dict[int, int] = {}
        """The messages of QoS 2 without PUBREL by their identifiers: hashes (MQTT 3.1.1), or 0."""
        self._repeated: set[int] = set()
        """The identifiers of those that have come again (MQTT 5)."""

    @property
    def held(self) -> int:
        """See `Reader.held`."""
        return len(self._rest)

    def forget(self) -> None:
        """See `Reader.forget`."""
        self._rest.clear()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """See `Reader.feed`."""
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._needed:
                return
            data = bytes(rest)
            rest.clear()
        start, size, offset = 0, len(data), self.offset
        try:
            while size - start >= 2:
                length, at = data[start + 1], start + 2
                if length > 0x7F:
                    length, at = head_length(data, start, size)
                    if not at:
                        self._needed = size - start + 1
                        break
                end = at + length
                if end - start > self._max_frame or self.client is None:
                    self._check_size(data[start : start + 2], end - start)
                if end > size:
                    self._needed = end - start
                    break
                frame = data[start:end]
                end_offset = offset + end
                if frame[0] >> 4 == _PUBLISH and self.client is not None:
                    yield self._publish(frame, at - start, end_offset)
                else:
                    yield self._other(frame, at - start, end_offset)
                start = end
            else:
                self._needed = 2
        except FrameError as error:
            if not error.answer and self.client is not None and self.client.version == MQTT_5:
                error.answer = _MALFORMED
            raise
        if start < size:
            rest += data[start:]
        self.offset = offset + start

    def forward(self, frame: Frame) -> bytes:
        """See `Reader.forward`."""
        alias, topic = frame.alias, frame.topic
        if not alias or topic is None:
            return frame.data
        data = frame.data
        at = body(data)
        if not (data[at] or data[at + 1]) and self._known.get(alias) != topic.text:
            raw = topic.text.encode()
            fields = len(raw).to_bytes(2, "big") + raw + data[at + 2 :]
            data = data[:1] + varint(len(fields)) + fields
        self._known[alias] = topic.text
        return data

    def drop(self, frame: Frame) -> bytes:
        """See `Reader.drop`."""
        data = frame.data
        qos = data[0] >> 1 & 3
        if not qos:
            return b""
        at = body(data)
        at += 2 + (data[at] << 8 | data[at + 1])
        identifier = data[at : at + 2]
        number = int.from_bytes(identifier, "big")
        assert self.client is not None
        if self.client.version == MQTT_5:
            self._unreleased.pop(number, None)
            self._repeated.discard(number)
            return (b"\x40\x03" if qos == 1 else b"\x50\x03") + identifier + QUOTA_EXCEEDED
        if qos == 1:
            return b"\x40\x02" + identifier
        if not data[0] & 8:
            self._dropped.add(number)
        return b"\x50\x02" + identifier

    def _publish(self, frame: bytes, at: int, end: int) -> Frame:
        flags = frame[0]
        qos = flags >> 1 & 3
        topic_at = at + 2
        if topic_at > len(frame):
            raise FrameError("PUBLISH.topic: must be within its packet")
        at = topic_at + (frame[at] << 8 | frame[at + 1])
        topic = self._topics[frame[topic_at:at]]
        if qos:
            identifier = int.from_bytes(frame[at : at + 2], "big")
            at += 2
            if qos == 3:
                raise FrameError("PUBLISH.qos: must be 0, 1 or 2 (got 3)")
            if not identifier:
                raise FrameError("PUBLISH.packet_id: must be at least 1 (got 0)")
            if qos == 2 and at <= len(frame):
                if self.client.version == MQTT_5:  # type: ignore[union-attr]  # CONNECT has come
                    if identifier in self._unreleased:
                        self._repeated.add(identifier)
                    elif len(self._unreleased) < MAX_UNRELEASED:
                        self._unreleased[identifier] = 0
                elif (repetition := self._repetition(frame, at, identifier, end)) is not None:
                    return repetition
        elif flags & 8:
            raise FrameError("PUBLISH.dup: must be 0 with QoS 0 (got 1)")
        alias = expiry_at = 0
        if self.client.version == MQTT_5:  # type: ignore[union-attr]  # CONNECT has come
            if at < len(frame) and not frame[at]:
                at += 1
            else:
                cursor = Cursor("PUBLISH", frame, at)
                alias, topic = self._alias(cursor, topic)
                expiry_at = cursor.expiry_at
        if at > len(frame):
            raise FrameError("PUBLISH.topic: must be within its packet, and the fields behind it")
        if not topic.text:
            raise FrameError("PUBLISH.topic: must not be empty")
        return _make((frame, end, topic, _KEEPS, alias, b"", expiry_at))

    def _repetition(self, frame: bytes, at: int, identifier: int, end: int) -> Frame | None:
        """The frame for a message of QoS 2 and MQTT 3.1.1 that the client repeats; None: it is new.

        The client has not seen the acknowledgement yet, whose identifier ends at `at`.
        """
        if identifier in self._dropped:
            return Frame(b"", end, None, _OVERTAKES, 0, b"\x50\x02" + frame[at - 2 : at])
        content, before = hash(frame[1:]), self._unreleased.get(identifier)
        if before is not None and (frame[0] & 8 or before == content):
            return Frame(b"", end, None, _OVERTAKES)
        if before is not None or len(self._unreleased) < MAX_UNRELEASED:
            self._unreleased[identifier] = content
        return None

    def _alias(self, cursor: Cursor, topic: Topic) -> tuple[int, Topic]:
        """The alias of a PUBLISH, and its topic."""
        at = cursor.properties()
        if at is None:
            return 0, topic
        alias = cursor.data[at] << 8 | cursor.data[at + 1]
        if not alias:
            raise cursor.wrong("topic_alias", "must be at least 1 (got 0)")
        before = self._aliases.get(alias)
        if not topic.text:
            if before is None:
                raise cursor.wrong("topic_alias", f"must be one that has a topic (got {alias})")
            return alias, before
        if before != topic:
            self._alias_bytes += len(topic.text.encode()) + ALIAS_BYTES
            if before is not None:
                self._alias_bytes -= len(before.text.encode()) + ALIAS_BYTES
            if self._alias_bytes > MAX_ALIAS_BYTES:
                claim = f"must stand for {MAX_ALIAS_BYTES} bytes of topics at most (with others)"
                raise cursor.wrong("topic_alias", claim)
            self._aliases[alias] = topic
        return alias, topic

    def _other(self, frame: bytes, at: int, end: int) -> Frame:
        """The frame of a packet that is no message."""
        kind, length = frame[0] >> 4, len(frame) - at
        name = _NAMES.get(kind)
        if name is None:
            raise FrameError(f"packet.type: must be one that clients send (got {kind})")
        if frame[0] & 15 != _FLAGS.get(kind, 0):
            raise FrameError(f"{name}.flags: must be {_FLAGS.get(kind, 0)} (got {frame[0] & 15})")
        if (kind == _CONNECT) != (self.client is None):
            raise FrameError(f"{name}: must be the first packet, and no other (MQTT 3.1)")
        if self.client is None:
            self.client = connect(frame, at)
            return Frame(frame, end, None, _KEEPS)
        newer = self.client.version == MQTT_5
        if kind in (12, _DISCONNECT, _AUTH):
            if length and (kind == 12 or not newer):
                raise FrameError(f"{name}.length: must be 0 (got {length})")
            if kind == _AUTH and not newer:
                raise FrameError("AUTH: must be of MQTT 5 (got MQTT 3.1.1)")
        elif length < 2 or (kind < 8 and length > 2 and not newer):
            raise FrameError(f"{name}.length: must be 2{' or more' * newer} (got {length})")
        elif kind == _PUBREL:
            identifier = int.from_bytes(frame[at : at + 2], "big")
            self._unreleased.pop(identifier, None)
            if identifier in self._dropped:
                self._dropped.remove(identifier)
                completed = b"\x70\x02" + frame[at : at + 2]
                return Frame(b"", end, None, _OVERTAKES, 0, completed)
            if identifier in self._repeated:
                self._repeated.remove(identifier)
                return Frame(frame, end, None, _KEEPS)
        return Frame(frame, end, None, _PLACES.get(kind, _KEEPS))

    def _check_size(self, head: bytes, size: int) -> None:
        """Refuse a packet that is too large, or no MQTT, before all of it is there."""
        if self.client is None:
            if head[0] != _CONNECT << 4:
                raise FrameError(_no_mqtt(head))
            if size > MAX_CONNECT:
                raise FrameError(f"CONNECT: must have at most {MAX_CONNECT} bytes (got {size})")
        if size > self._max_frame:
            name = _NAMES.get(head[0] >> 4, "packet")
            answer = (
                _TOO_LARGE if self.client is not None and self.client.version == MQTT_5 else b""
            )
            claim = (
                f"must have at most {self._max_frame} bytes, the broker's max_frame (got {size})"
            )
            raise FrameError(f"{name}: {claim}", answer)


def _no_mqtt(head: bytes) -> str:
    """The reason why drld refuses a connection that begins with these two bytes."""
    if head == b"\x16\x03":
        return "client: must speak MQTT without TLS here (got a TLS handshake)"
    if head in (b"GE", b"HE", b"PO"):
        return "client: must speak MQTT over TCP (got HTTP; MQTT over WebSocket is not supported)"
    return f"client: must begin with CONNECT, 0x10 (got {head[0]:#04x})"
