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
"""In one message: its packet is well below the smallest MTU, and an answer is no amplification."""

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
"""Bytes of a datagram."""


class Kind(enum.IntEnum):
    """What a control message is, and its number on the wire."""

    HELLO = 1
    PROBE = 2
    ACK = 3
    PROBE_REQUEST = 4


class State(enum.IntEnum):
    """What is said of a limiter."""

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


NOBODY = End(0, 0)
"""In the place of an end that is not known."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A handshake message (`drld.gossip.wire.session`)."""

    mine: End
    yours: End
    """With whom the sender has a session."""
    nonce: int
    """What proves to the sender that whoever echoes it lives now; 64 bits."""
    echo: int
    """The receiver's nonce; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Rumour:
    """What the sender has heard of some limiter."""

    subject: int
    """Whom it is about: the hash of its name (`drld.gossip.fabrics.tree_ranks.rank`)."""
    life: int
    """The incarnation it is about."""
    counter: int
    """How often that life has refuted what was said of it; 32 bits."""
    state: State
    accusers: int = 0
    """Of a suspicion: a bit for each who raised it, so that what is heard by
    many ways counts once (`drld.gossip.health.broadcast_queue.accuser`). 0 otherwise."""


@dataclass(frozen=True, slots=True)
class Control:
    """A probe, an acknowledgement, or the request to probe somebody else."""

    kind: Kind
    """Not HELLO."""
    sequence: int
    """Which probe this is or belongs to; 32 bits."""
    target: int
    """Who is probed: the hash of its name."""
    digest: int
    """Of the limits that the sender is configured with; 64 bits."""
    rumours: tuple[Rumour, ...] = ()


class _HelloCodec(NumberedCodec[Hello]):
    def check_length_untrusted(self, length: int) -> None:
        if length != HEADER.size + HELLO.size:
            raise WireError("length", f"{length} bytes are no HELLO")

    def decode_untrusted(self, content: bytes) -> Hello:
        hello = super().decode_untrusted(content)
        if number_of(content):
            raise WireError("reserved", "a HELLO has no number")
        return hello

    def pack(self, body: Hello) -> bytes:
        names = [name for word in HELLO.words for name, _ in word.fields]
        fields = (*body.mine, *body.yours, body.nonce, body.echo)
        return HELLO.pack(dict(zip(names, fields, strict=True)))

    def unpack_untrusted(self, data: bytes) -> Hello:
        my_life, my_opening, your_life, your_opening, nonce, echo = HELLO.struct.unpack(data)
        if not (my_life and my_opening and nonce):
            raise WireError("reserved", "a HELLO's own end and nonce are not 0")
        return Hello(End(my_life, my_opening), End(your_life, your_opening), nonce, echo)


class _ControlCodec(NumberedCodec[Control]):
    def check_length_untrusted(self, length: int) -> None:
        rumours, rest = divmod(length - HEADER.size - BODY.size, RUMOUR.size)
        if rest or not 0 <= rumours <= MAX_RUMOURS:
            raise WireError("length", f"{length} bytes are no probe")

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
        raise WireError("rumour", "a limiter that is not suspected has no accusers")
    return rumour


register(_HelloCodec(Kind.HELLO))
for _kind in (Kind.PROBE, Kind.ACK, Kind.PROBE_REQUEST):
    register(_ControlCodec(_kind))
