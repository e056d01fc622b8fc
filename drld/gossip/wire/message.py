"""Messages by kind: the common parts of every datagram, and the codec of each kind.

A datagram begins with the wire version, its kind and the id of its key, and ends with a tag
(docs/wire-format.md). The kind says which codec reads the rest. A module that defines a message
registers a codec for it (`register`), so a kind of traffic adds its messages from its own folder.
A kind that no imported module has registered is refused as unknown.

Two families of kinds differ in how a repeated datagram is found out:

- Numbered kinds. The session counts these messages, and a replay window accepts each number once
  (`drld.gossip.wire.replay_window`). Their header has 8 bytes, their tag 16.
- Other kinds have sequence numbers of their own. The fleet chooses the length of their tag.

Input from the network is hostile until checked: a codec returns a message whose every field is
within its bounds, or raises `WireError`, and never anything else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from drld.errors import WireError
from drld.gossip.wire.layout import Table, Word

VERSION = 2
LONG_TAG_SIZE = 16
"""The length of a numbered message's tag, and the longest tag that a fleet may choose, bytes."""
MAX_CONTENT = 1152
"""The longest datagram without its tag, bytes. With the longest tag, its packet fits the smallest
MTU of IPv6 (1280 bytes) with room for a tunnel's header."""
MAX_DATAGRAM = MAX_CONTENT + LONG_TAG_SIZE
"""The longest datagram with its tag, bytes."""

VERSION_AND_KIND = Word("B", (("version", 4), ("kind", 4)))
"""The first byte of every message."""
HEADER = Table(
    VERSION_AND_KIND,
    Word("B", (("key_id", 2), ("reserved", 6))),
    Word("H", (("unused", 16),)),
    Word("I", (("number", 32),)),
)
"""The header of the numbered kinds."""

Body = TypeVar("Body")


class Codec(ABC, Generic[Body]):
    """Writes and reads the messages of one kind."""

    numbered: bool
    """Whether the session numbers these messages."""

    def __init__(self, kind: int) -> None:
        """`kind` is the number of the kind on the wire, 0 to 15."""
        self.kind = kind

    @abstractmethod
    def check_length_untrusted(self, length: int) -> None:
        """Check the length of a message without its tag, bytes.

        Raises:
            WireError: with the reason `length`.
        """

    @abstractmethod
    def encode(self, body: Body, key_id: int, number: int) -> bytes:
        """Return a datagram without its tag. `number` is the session's, or 0 for a kind without
        numbers.

        Raises:
            ValueError: a field is out of its bounds (an error of the caller).
        """

    @abstractmethod
    def decode_untrusted(self, content: bytes) -> Body:
        """Return the message in a datagram without its tag; `head_untrusted` accepted its first
        bytes.

        Raises:
            WireError: with the reason of the first field that is out of its bounds.
        """


class NumberedCodec(Codec[Body]):
    """A kind whose messages the session numbers."""

    numbered = True

    def encode(self, body: Body, key_id: int, number: int) -> bytes:
        """See `Codec.encode`."""
        header = {
            "version": VERSION,
            "kind": self.kind,
            "key_id": key_id,
            "reserved": 0,
            "unused": 0,
            "number": number,
        }
        return HEADER.pack(header) + self.pack(body)

    def decode_untrusted(self, content: bytes) -> Body:
        """See `Codec.decode_untrusted`."""
        self.check_length_untrusted(len(content))
        header = HEADER.read(content)
        if header["reserved"] or header["unused"]:
            raise WireError("reserved", "bits that must be zero are not")
        return self.unpack_untrusted(content[HEADER.size :])

    @abstractmethod
    def pack(self, body: Body) -> bytes:
        """Return the bytes after the header.

        Raises:
            ValueError: as `encode`.
        """

    @abstractmethod
    def unpack_untrusted(self, data: bytes) -> Body:
        """Return the message after a header. `check_length_untrusted` has accepted its length.

        Raises:
            WireError: as `decode_untrusted`.
        """


_CODECS: dict[int, Codec[Any]] = {}


def register(codec: Codec[Any]) -> None:
    """Register a codec for its kind.

    Raises:
        ValueError: the kind is out of its bounds, or has another codec.
    """
    if not 0 <= codec.kind < 16:
        raise ValueError(f"kind {codec.kind}: must be from 0 to 15")
    if codec.kind in _CODECS:
        raise ValueError(f"kind {codec.kind}: must have one codec (has {_CODECS[codec.kind]})")
    _CODECS[codec.kind] = codec


def codec_of(kind: int) -> Codec[Any]:
    """Return the codec of a kind that this limiter sends.

    Raises:
        KeyError: the kind has no codec.
    """
    return _CODECS[kind]


def head_untrusted(datagram: bytes) -> tuple[Codec[Any], int]:
    """Return the codec and the key id of a datagram.

    Raises:
        WireError: with the reason `length`, `version` or `kind`.
    """
    if not HEADER.size < len(datagram) <= MAX_DATAGRAM:
        raise WireError("length", f"no message has {len(datagram)} bytes")
    version = datagram[0] >> 4
    if version != VERSION:
        raise WireError("version", f"must be {VERSION} (got {version})")
    codec = _CODECS.get(datagram[0] & 15)
    if codec is None:
        raise WireError("kind", f"must be a known kind (got {datagram[0] & 15})")
    return codec, datagram[1] >> 6


def number_of(content: bytes) -> int:
    """Return the number of a decoded message of a numbered kind."""
    number: int = HEADER.read(content)["number"]
    return number
