"""The codec of control messages: handshakes and probes (docs/wire-format.md).

Every message begins with a header of 8 bytes and ends with a tag of 16 bytes
(`drld.gossip.wire.datagram_tag`). A HELLO carries the two ends of a session and two nonces
(`drld.gossip.wire.session`). PROBE, ACK and PROBE_REQUEST share one body, a `Control`, and carry up
to `MAX_RUMOURS` rumours.

Input from the network is hostile until checked: `decode_control_untrusted` returns a message whose
every field is within its bounds, or raises `WireError`, and never anything else.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from drld.errors import WireError
from drld.gossip.wire.layout import Table, Word
from drld.gossip.wire.update_codec import VERSION

CONTROL_TAG_SIZE = 16
MAX_RUMOURS = 12
"""In one message: its packet is well below the smallest MTU, and an answer is no amplification."""

ACCUSER_BITS = 6

HEADER = Table(
    Word("B", (("version", 4), ("kind", 4))),
    Word("B", (("key_id", 2), ("reserved", 6))),
    Word("H", (("rumours", 16),)),
    Word("I", (("number", 32),)),
)
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
    HEADER.size + max(HELLO.size, BODY.size + MAX_RUMOURS * RUMOUR.size) + CONTROL_TAG_SIZE
)
"""Bytes of a datagram."""


class Kind(enum.IntEnum):
    """What a control message is, and its number on the wire; 0 is an update."""

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


def encode_control(message: Hello | Control, key_id: int, number: int) -> bytes:
    """All of a datagram but its tag.

    `number` counts the control messages of one direction of a session, and is 0 in a HELLO, which
    belongs to none.

    Raises:
        ValueError: a field is out of its bounds (a fault of the caller's).
    """
    rumours: tuple[Rumour, ...] = ()
    if isinstance(message, Hello):
        kind = Kind.HELLO
        body = HELLO.pack(
            {
                "my_life": message.mine.life,
                "my_opening": message.mine.opening,
                "your_life": message.yours.life,
                "your_opening": message.yours.opening,
                "nonce": message.nonce,
                "echo": message.echo,
            }
        )
    else:
        kind, rumours = message.kind, message.rumours
        if kind is Kind.HELLO or len(rumours) > MAX_RUMOURS:
            raise ValueError(f"{message}: is no HELLO and has at most {MAX_RUMOURS} rumours")
        body = BODY.pack(
            {"sequence": message.sequence, "target": message.target, "digest": message.digest}
        )
        body += b"".join(
            RUMOUR.pack(
                {
                    "subject": rumour.subject,
                    "life": rumour.life,
                    "counter": rumour.counter,
                    "state": rumour.state,
                    "accusers": rumour.accusers,
                }
            )
            for rumour in rumours
        )
    header = HEADER.pack(
        {
            "version": VERSION,
            "kind": kind,
            "key_id": key_id,
            "reserved": 0,
            "rumours": len(rumours),
            "number": number,
        }
    )
    return header + body


def decode_control_untrusted(datagram: bytes) -> tuple[Hello | Control, int]:
    """A control message and its number; the tag is `drld.gossip.wire.datagram_tag`'s to check.

    Raises:
        WireError: with the reason `length`, `version`, `kind`, `reserved` or `rumour`, after the
            first field that is not as it must be.
    """
    if not HEADER.size + CONTROL_TAG_SIZE <= len(datagram) <= MAX_CONTROL_SIZE:
        raise WireError("length", f"{len(datagram)} bytes are no control message")
    header = HEADER.read(datagram)
    if header["version"] != VERSION:
        raise WireError("version", f"{header['version']} instead of {VERSION}")
    if header["kind"] not in Kind.__members__.values():
        raise WireError("kind", f"{header['kind']} is no control message")
    kind = Kind(header["kind"])
    if header["reserved"]:
        raise WireError("reserved", "bits that must be zero are not")
    count, number = header["rumours"], header["number"]
    if kind is Kind.HELLO:
        if count or number:
            raise WireError("reserved", "a HELLO has neither a number nor rumours")
        _check_length(datagram, HELLO.size)
        return _hello(HELLO.read(datagram, HEADER.size)), number
    if count > MAX_RUMOURS:
        raise WireError("rumour", f"{count} are more than {MAX_RUMOURS}")
    _check_length(datagram, BODY.size + count * RUMOUR.size)
    body = BODY.read(datagram, HEADER.size)
    first = HEADER.size + BODY.size
    rumours = tuple(
        _rumour(RUMOUR.read(datagram, first + index * RUMOUR.size)) for index in range(count)
    )
    return Control(kind, body["sequence"], body["target"], body["digest"], rumours), number


def _check_length(datagram: bytes, body: int) -> None:
    if len(datagram) != HEADER.size + body + CONTROL_TAG_SIZE:
        raise WireError("length", f"{len(datagram)} bytes do not fit what they are said to hold")


def _hello(fields: dict[str, int]) -> Hello:
    mine = End(fields["my_life"], fields["my_opening"])
    yours = End(fields["your_life"], fields["your_opening"])
    if not (mine.life and mine.opening and fields["nonce"]):
        raise WireError("reserved", "a HELLO's own end and nonce are not 0")
    return Hello(mine, yours, fields["nonce"], fields["echo"])


def _rumour(fields: dict[str, int]) -> Rumour:
    state = State(fields["state"])
    if fields["accusers"] and state is not State.SUSPECT:
        raise WireError("rumour", "nobody accuses whoever is not suspected")
    return Rumour(fields["subject"], fields["life"], fields["counter"], state, fields["accusers"])
