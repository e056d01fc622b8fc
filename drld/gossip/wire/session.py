"""Sessions: which life of a peer a limiter talks to, and proof that it lives now.

A daemon draws its *life* (an incarnation) at its start. An `End` is a life and the number of the
session that it opened. A session is a pair of ends, each with proof that the other is fresh. Its
keys are derived from both ends (`drld.gossip.wire.datagram_tag`). A datagram recorded in one
session therefore fits no other, and sequence numbers begin at 0 in each.

Theory of operation. There is one message, HELLO(mine, yours, nonce, echo): I am `mine`, I have a
session with `yours` (or nobody), whoever echoes `nonce` proves that it lives now, and your nonce is
`echo`. It is tagged with the fleet's key over both names. The nonce is a keyed hash of the end that
the session is with: it stays the same until another end has proved itself, and then never comes
back. On HELLO(mine, yours, nonce, echo):

1. If `mine` is not the peer's known end, and `echo` is our nonce: the session is with `mine` now,
   and our nonce another one. The peer has been *met*.
2. If `yours` is not our end, or `mine` is (still) not theirs: answer HELLO with echo = `nonce`.

A limiter that has something to tell a peer without a session sends a HELLO instead (echo = 0), and
so does one that gets a datagram that does not fit: its sender may have met an end of ours, or be
one, that we do not know. From nothing that makes three messages:

    A: HELLO(a, nobody, m, 0)    B: HELLO(b, nobody, n, m)    A meets b
                                 A: HELLO(a, b, m', n)        B meets a

Why two values in the place of a nonce do not do. If the proof were an echo of `mine`, which stays
the same as long as the daemon lives, a HELLO of the peer's last life but one, recorded, would prove
a life that is over, and end a good session.

Invariants, whatever is lost, repeated, delayed, reordered or replayed, by those who do not have the
key:

- A peer is met only if it has seen our nonce, so it lived after the end before it was met. As lives
  of one name do not overlap, the ends that are met are in the order of their beginnings, and none
  is met twice: nothing but a later life of the peer ends a session.
- Whoever has a session is not answered, so no two messages make more than one of the other.
- As long as one of two limiters has something to tell the other, and some messages arrive, both
  come to have the session of their present ends.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from drld.gossip.wire.control_codec import NOBODY, End, Hello

_NONCE = b"drld-non"


@dataclass(frozen=True, slots=True)
class Met:
    """A session with a new life of a peer has been completed; what it sends counts from 0."""

    life: int
    """The peer's incarnation."""


class Reaction(NamedTuple):
    """What a HELLO leads to."""

    met: bool
    answer: Hello | None


class Session:
    """One limiter's side of its session with one peer, or of the attempt to have one."""

    __slots__ = ("_nonce", "_secret", "mine", "theirs")

    def __init__(self, mine: End, secret: bytes) -> None:
        """`mine` is used for no other session, and `secret` is a random one of this daemon."""
        self.mine = mine
        self.theirs = NOBODY
        """The end that was met last."""
        self._secret = secret
        self._nonce = self._make_nonce()

    @property
    def open(self) -> bool:
        """Whether there is a session."""
        return self.theirs is not NOBODY

    def greet(self, echo: int = 0) -> Hello:
        """What to say to the peer."""
        return Hello(self.mine, self.theirs, self._nonce, echo)

    def proves(self, hello: Hello) -> bool:
        """Whether an authenticated HELLO is of a life of the peer that is to be met."""
        return hello.mine != self.theirs and hello.echo == self._nonce

    def receive(self, hello: Hello) -> Reaction:
        """Take in an authenticated HELLO of the peer."""
        met = self.proves(hello)
        if met:
            self.theirs = hello.mine
            self._nonce = self._make_nonce()
        settled = hello.yours == self.mine and hello.mine == self.theirs
        return Reaction(met, None if settled else self.greet(hello.nonce))

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """Both ends as keys are derived from them: of what is sent, and of what is received."""
        mine, theirs = _packed(self.mine), _packed(self.theirs)
        return mine + theirs, theirs + mine

    def _make_nonce(self) -> int:
        """One that nobody can know who has not been told since `theirs` was met."""
        digest = hashlib.blake2s(
            _packed(self.mine) + _packed(self.theirs),
            key=self._secret,
            person=_NONCE,
            digest_size=8,
        )
        return int.from_bytes(digest.digest(), "big") or 1


def _packed(end: End) -> bytes:
    return end.life.to_bytes(8, "big") + end.opening.to_bytes(4, "big")
