"""A call of a gRPC client that is not answered yet, and the messages in its bytes. Pure.

A message is a byte that says whether it is compressed, four bytes of length, and the bytes of the
message (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from drld.requests.grpc.bounds import MAX_MESSAGE_BYTES
from drld.requests.grpc.call import CallError, Status
from drld.requests.grpc.headers import CallHead
from drld.requests.grpc.http2 import Headers

_HEAD = struct.Struct(">BI")
"""The head of a message: whether it is compressed, and its length."""


@dataclass(slots=True)
class OpenCall:
    """A stream of HTTP/2 whose call is not answered yet; times are seconds."""

    head: CallHead
    give_up: float
    """The time at which the client stops waiting."""
    deadline: float
    """The time at which the server ends the call if nothing changes."""
    received: bytearray = field(default_factory=bytearray)
    """The bytes of a message that has begun."""
    message: bytes | None = None
    """The message of a call that has one."""
    ended: bool = False
    """Whether everything that the client sends is here."""
    settled: bool = False
    """Whether the end of the call is ready; later messages are not read."""
    begun: bool = False
    """Whether an answer has begun."""
    unsent: bytes = b""
    """The bytes that the client does not take yet."""
    blocked: bool = False
    """Whether the client did not take some bytes; the bytes after them share their deadline."""
    refusal: bytes | None = None
    """The answer to a message that is too large; None: there is no such message."""
    last: Headers | None = None
    """The trailers after that; None: they are not known yet."""
    stays: bool = False
    """Whether the call is answered, and waits for its farewell."""

    @property
    def held(self) -> int:
        """The bytes that the call keeps until it is answered."""
        message = 0 if self.message is None else _HEAD.size + len(self.message)
        return len(self.received) + message

    def messages(self, data: bytes) -> Iterator[bytes]:
        """Take bytes of the client; return the messages that they complete.

        The message of a call that has one is kept (`message`) until the call has ended.

        Raises:
            CallError: the call may not have these bytes.
        """
        received = self.received
        received += data
        while len(received) >= _HEAD.size:
            compressed, size = _HEAD.unpack_from(received)
            if compressed:
                status = Status.UNIMPLEMENTED if self.head.compressed else Status.INTERNAL
                raise CallError(status, "messages must not be compressed")
            if size > MAX_MESSAGE_BYTES:
                text = f"a message must have {MAX_MESSAGE_BYTES} bytes at most"
                raise CallError(Status.RESOURCE_EXHAUSTED, text)
            size += _HEAD.size
            if len(received) < size:
                break
            if self.message is not None:
                raise CallError(Status.UNIMPLEMENTED, "a call must have one message")
            message = bytes(received[_HEAD.size : size])
            del received[:size]
            if self.head.handler.streams:
                yield message
            else:
                self.message = message


def framed(message: bytes) -> bytes:
    """Return a message with its head."""
    return _HEAD.pack(0, len(message)) + message
