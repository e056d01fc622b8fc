"""The codecs of control messages: handshakes and probes (docs/wire-format.md).

All are of numbered kinds (`drld.gossip.wire.message`). PROBE, ACK and PROBE_REQUEST share one body.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

from drld.errors import WireError
from drld.gossip.wire.layout import Table, Word
from drld.gossip.wire.message import HEADER, LONG_TAG_SIZE, NumberedCodec, number_of, register

MAX_RUMOURS = 12
"""Rumours in one message: its packet is well below the smallest MTU, and an answer is hardly longer
than its question."""

ACCUSER_BITS = 6

HELLO = Table(
    Word("Q", (("my_life", 64),)),
    Word("I", (("my_opening", 32),)),
    Word("Q", (("your_life", 64),)),
    Word("I", (("your_opening", 32),)),
    Word("Q", (("nonce", 64),)),
    Word("Q", (("echo", 64),)),
)
BODY = Table(
    Word("I", (("sequence", 32),)),
    Word("Q", (("target", 64),)),
    Word("Q", (("digest", 64),)),
)
RUMOUR = Table(
    Word("Q", (("subject", 64),)),
    Word("Q", (("life", 64),)),
    Word("I", (("counter", 32),)),
    Word("B", (("accusers", ACCUSER_BITS), ("state", 2))),
)
MAX_CONTROL_SIZE = (
    HEADER.size + max(HELLO.size, BODY.size + MAX_RUMOURS * RUMOUR.size) + LONG_TAG_SIZE
)
"""Bytes of the longest datagram with a control message."""


class Kind(enum.IntEnum):
    """The kind of a control message; the values are those on the wire."""

    HELLO = 1
    PROBE = 2
    ACK = 3
    PROBE_REQUEST = 4


class State(enum.IntEnum):
    """The state of a limiter in a rumour; the values are those on the wire."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


class End(NamedTuple):
    """One end of a session; no two sessions that a daemon opens have the same one."""

    life: int
    """The incarnation of the daemon: 64 random bits drawn at its start, not 0."""
    opening: int
    """Counts the sessions that this life of the daemon opened, from 1."""


NO_END = End(0, 0)
"""The end of a peer that the sender does not know yet."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A handshake message (`drld.gossip.wire.session`)."""

    mine: End
    yours: End
    """The end that the sender has a session with, or `NO_END`."""
    nonce: int
    """64 bits; a peer that echoes them proves to the sender that it runs now."""
    echo: int
    """The receiver's nonce; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Rumour:
    """A finding about one limiter."""

    subject: int
    """The hash of that limiter's name (`drld.gossip.fabrics.tree_ranks.rank`)."""
    life: int
    """The incarnation of that limiter."""
    counter: int
    """The number of rumours that this life has refuted; 32 bits."""
    state: State
    accusers: int = 0
    """A bit for each limiter that raised a suspicion, so that each counts once, however often it is
    heard (`drld.gossip.health.broadcast_queue.accuser`). 0 if the state is not `SUSPECT`."""


@dataclass(frozen=True, slots=True)
class Control:
    """A probe, an acknowledgement, or the request to probe another limiter."""

    kind: Kind
    """The kind of the message: any but `HELLO`."""
    sequence: int
    """The number of the probe: this one, the answered one, or the one asked for; 32 bits."""
    target: int
    """The hash of the name of the limiter that is probed."""
    digest: int
    """A digest of the sender's limits (`drld.gossip.health.config_digest`); 64 bits."""
    rumours: tuple[Rumour, ...] = ()


class _HelloCodec(NumberedCodec[Hello]):
    def check_length_untrusted(self, length: int) -> None:
        if length != HEADER.size + HELLO.size:
            raise WireError("length", f"no HELLO has {length} bytes")

    def decode_untrusted(self, content: bytes) -> Hello:
        hello = super().decode_untrusted(content)
        if number_of(content):
            raise WireError("reserved", "the number of a HELLO must be 0")
        return hello

    def pack(self, body: Hello) -> bytes:
        names = [name for word in HELLO.words for name, _ in word.fields]
        fields = (*body.mine, *body.yours, body.nonce, body.echo)
        return HELLO.pack(dict(zip(names, fields, strict=True)))

    def unpack_untrusted(self, data: bytes) -> Hello:
        my_life, my_opening, your_life, your_opening, nonce, echo = HELLO.struct.unpack(data)
        if not (my_life and my_opening and nonce):
            raise WireError("reserved", "a HELLO's own end and nonce must not be 0")
        return Hello(End(my_life, my_opening), End(your_life, your_opening), nonce, echo)


class _ControlCodec(NumberedCodec[Control]):
    def check_length_untrusted(self, length: int) -> None:
        rumours, rest = divmod(length - HEADER.size - BODY.size, RUMOUR.size)
        if rest or not 0 <= rumours <= MAX_RUMOURS:
            raise WireError("length", f"no probe has {length} bytes")

    def pack(self, body: Control) -> bytes:
        if body.kind != self.kind or len(body.rumours) > MAX_RUMOURS:
            raise ValueError(f"{body}: must be of kind {self.kind}, with {MAX_RUMOURS} rumours")
        return BODY.pack_of(body) + b"".join(map(RUMOUR.pack_of, body.rumours))

    def unpack_untrusted(self, data: bytes) -> Control:
        fields = BODY.read(data)
        rumours = tuple(
            _rumour(RUMOUR.read(data, offset))
            for offset in range(BODY.size, len(data), RUMOUR.size)
        )
        return Control(Kind(self.kind), **fields, rumours=rumours)


def _rumour(fields: dict[str, Any]) -> Rumour:
    rumour = Rumour(**fields | {"state": State(fields["state"])})
    if rumour.accusers and rumour.state is not State.SUSPECT:
        raise WireError("rumour", "a limiter that is not suspected must have no accusers")
    return rumour


register(_HelloCodec(Kind.HELLO))
for _kind in (Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST):
    register(_ControlCodec(_kind))
