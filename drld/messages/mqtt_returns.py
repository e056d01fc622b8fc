"""MQTT 3.1.1 and 5: the stream of a client's broker."""

from __future__ import annotations

from drld.errors import FrameError
from drld.messages.frame import MAX_FRAME
from drld.messages.mqtt_packet import connack, head_length

_CONNACK, _AUTH = 0x20, 0xF0
_PINGRESP, _ANSWERS = 0xD0, b"\xd0"


class MqttReturns:
    """Passes the stream from a broker to its client (`drld.messages.frame.Returns`).

    It leaves out the answers to drld's pings, and knows where packets end.
    """

    __slots__ = (
        *("_beginning", "_head", "_left", "_queue", "_withheld"),
        *("accepted", "asked", "assigned_id", "greeted", "held", "keep_alive_s", "pings"),
        "stands_in",
    )

    def __init__(self, max_frame: int = MAX_FRAME, *, tls: bool = False) -> None:  # noqa: ARG002 -- for NATS
        """See `ReturnsFactory`."""
        self.assigned_id = ""
        self.keep_alive_s: int | None = None
        self.greeted = False
        self.accepted = False
        self._beginning: bytearray | None = bytearray()
        """The bytes that the broker has sent until CONNACK; None: CONNACK has come."""
        self.held = 0
        self.pings = 0
        self.stands_in = False
        self.asked = 0  # Brokers of MQTT send no pings.
        self._queue: list[bytes] = []
        self._head = b""
        """The first bytes of a packet whose length is not known yet."""
        self._withheld = False
        """Whether the client does not have `_head`: it may be an answer to drld's ping."""
        self._left = 0
        """The number of missing bytes of the packet that has begun."""

    def feed(self, data: bytes) -> bytes:
        """See `Returns.feed`."""
        if self._beginning is not None:
            self._judge(data)
        if self._withheld:
            data, self._head = self._head + data, b""
        passed = len(self._head)
        work = self._head + data if passed else data
        at, size, first = self._left, len(work), 0
        if 0 < at <= size:
            first = at
        self._head = b""
        answers: list[int] = []
        while at < size:
            length, begin = (work[at + 1], at + 2) if at + 1 < size else (0, 0)
            if length > 0x7F:
                length, begin = head_length(work, at, size)
            if not begin:
                self._head = work[at:]
                at = size
                break
            # One whose first byte the client has answers its own ping.
            if self.pings and work[at] == _PINGRESP and at >= passed:
                if length:
                    raise FrameError(f"PINGRESP.length: must be 0 (got {length})")
                self.pings -= 1
                answers.append(at - passed)
            at = begin + length
            if not first and at <= size:
                first = at
        self._left = at - size
        if first:
            self.greeted = True
            if self._queue:
                first -= passed
                queued = b"".join(self._queue)
                data = data[:first] + queued + data[first:]
                answers = [at if at < first else at + len(queued) for at in answers]
                self._queue.clear()
                self.held = 0
        for at in reversed(answers):
            data = data[:at] + data[at + 2 :]
        self._withheld = self.pings > 0 and self._head == _ANSWERS
        return data[:-1] if self._withheld else data

    def insert(self, data: bytes) -> bytes:
        """See `Returns.insert`."""
        if self.greeted and not self._left and not self._head:
            return data
        self._queue.append(data)
        self.held += len(data)
        return b""

    def _judge(self, data: bytes) -> None:
        """Look for CONNACK; AUTH packets may come before it (MQTT 5, 4.12)."""
        assert self._beginning is not None
        self._beginning += data
        while len(self._beginning) >= 2:
            length, at = head_length(self._beginning, 0, len(self._beginning))
            if not at or len(self._beginning) < at + length:
                return
            if self._beginning[0] != _AUTH:
                if self._beginning[0] == _CONNACK:
                    packet = bytes(self._beginning[: at + length])
                    self.accepted, self.keep_alive_s, self.assigned_id = connack(packet, at)
                self._beginning = None
                return
            del self._beginning[: at + length]
