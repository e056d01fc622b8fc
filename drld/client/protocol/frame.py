"""Frames of the batch protocol: `length 4 | kind 1 | reserved 1 | count 2`, and a body.

The length is that of the body, in bytes; the count is the number of items in the body. All numbers
are in network order. A client may send any number of frames before it reads an answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from drld.errors import WireError

HEAD = struct.Struct(">IBBH")
MAX_CHECKS = 4096
"""The most questions of one frame."""
MAX_BODY_BYTES = 262_144
"""The most bytes of a frame to the limiter: 64 bytes for each of the most questions. A limiter
keeps as much for each connection of a stranger."""
MAX_ANSWER_BYTES = 8_388_608
"""The most bytes of a frame to the client, which trusts its limiter more: about 10,000 limits
fit."""


class Kind(IntEnum):
    """The kind of a frame."""

    CHECKS = 1
    """From a client: questions (`check_codec`)."""
    ANSWERS = 2
    """From the limiter: answers to questions, in any order."""
    ASK_LIMITS = 3
    """From a client: a question for the limits. The body is empty."""
    LIMITS = 4
    """From the limiter: the limits (`limit_table`)."""


def frame(kind: Kind, count: int, body: bytes) -> bytes:
    """Return the bytes of one frame."""
    return HEAD.pack(len(body), kind, 0, count) + body


class Frames:
    """Cuts a stream of bytes into frames."""

    def __init__(self, max_body_bytes: int) -> None:
        """Cut a stream; a frame with a larger body is an error."""
        self._most = max_body_bytes
        self._read = bytearray()
        self._needed = HEAD.size
        """The bytes that complete a frame, or its head: a frame that comes byte by byte costs
        little."""

    @property
    def partial(self) -> bool:
        """Whether a frame has begun and is not complete."""
        return bool(self._read)

    def feed(self, data: bytes) -> Iterator[tuple[Kind, int, bytes]]:
        """Return the kinds, counts and bodies of the frames that these bytes complete.

        Raises:
            WireError: the stream has no frame here; nothing after it can be read.
        """
        self._read += data
        if len(self._read) < self._needed:
            return
        read, at = bytes(self._read), 0
        self._needed = HEAD.size
        try:
            while len(read) - at >= HEAD.size:
                length, kind, reserved, count = HEAD.unpack_from(read, at)
                if length > self._most:
                    raise WireError("length", f"a frame of {length} bytes, {self._most} at most")
                if reserved:
                    raise WireError("reserved", f"the reserved byte of a frame is {reserved}")
                if count > MAX_CHECKS:
                    raise WireError("count", f"a frame of {count} checks, {MAX_CHECKS} at most")
                end = at + HEAD.size + length
                if end > len(read):
                    self._needed = end - at
                    break
                body = read[at + HEAD.size : end]
                at = end
                yield _kind(kind), count, body
        finally:
            del self._read[:at]


def _kind(number: int) -> Kind:
    try:
        return Kind(number)
    except ValueError:
        raise WireError("kind", f"{number} is no kind of frame") from None
