"""Sessions: the incarnation of a peer that a limiter talks to, and proof that it runs now.

A daemon draws its incarnation (`life`) at its start. An `End` is an incarnation and the number of
the session that it opened. A session is a pair of ends, each with proof that the other is fresh.
Its keys are derived from both ends (`drld.gossip.wire.datagram_tag`). A datagram recorded in one
session therefore fits no other, and sequence numbers begin at 0 in each.

Theory of operation. There is one message, HELLO(mine, yours, nonce, echo): the sender is `mine` and
has a session with `yours` (or `NO_END`); a peer that echoes `nonce` proves that it runs now; `echo`
is the receiver's nonce. It is tagged with the fleet's key over both names. The nonce is a keyed
hash of the end that the session is with. It stays the same until another end has proved itself, and
then never comes back. On HELLO(mine, yours, nonce, echo):

1. If `mine` is not the peer's known end, and `echo` is the receiver's nonce: the session is with
   `mine` now, and the receiver takes another nonce. The peer has been *met*.
2. If `yours` is not the receiver's end, or `mine` is still not the known end: answer HELLO with
   echo = `nonce`.

A limiter that has a message for a peer without a session sends a HELLO instead (echo = 0). So does
a limiter that gets a datagram of an unknown session, since one of the two may have restarted. A
first handshake takes three messages:

    A: HELLO(a, none, m, 0)      B: HELLO(b, none, n, m)      A meets b
                                A: HELLO(a, b, m', n)         B meets a

Why an echo of `mine` cannot replace the nonce: `mine` stays the same as long as the daemon runs. A
recorded HELLO of an earlier incarnation would then prove one that has ended, and end a good
session.

Invariants, if an attacker without the key loses, repeats, delays, reorders or replays messages:

- A peer is met only if it has seen the current nonce, so it ran after the previous end was met.
  Incarnations of one name do not overlap. So ends are met in the order of their beginnings, none
  twice, and only a later incarnation of the peer ends a session.
- A HELLO of the current session gets no answer, so two limiters do not answer each other for ever.
- As long as one of two limiters has messages for the other, and some HELLOs arrive, both reach the
  session of their present ends.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from drld.gossip.wire.control_codec import NO_END, End, Hello

_NONCE = b"drld-non"


@dataclass(frozen=True, slots=True)
class Met:
    """A session with a new incarnation of a peer is complete; its sequence numbers start at 0."""

    life: int
    """The peer's incarnation."""


class Reaction(NamedTuple):
    """The effect of a HELLO: whether the peer was met, and the HELLO to answer with, if any."""

    met: bool
    answer: Hello | None


class Session:
    """One limiter's side of its session with one peer, or of the attempt to have one."""

    __slots__ = ("_nonce", "_secret", "mine", "theirs")

    def __init__(self, mine: End, secret: bytes) -> None:
        """`mine` serves no other session. `secret` is random, and known to this daemon alone."""
        self.mine = mine
        self.theirs = NO_END
        """The end that was met last."""
        self._secret = secret
        self._nonce = self._make_nonce()

    @property
    def open(self) -> bool:
        """Whether there is a session."""
        return self.theirs is not NO_END

    def greet(self, echo: int = 0) -> Hello:
        """The HELLO to send to the peer."""
        return Hello(self.mine, self.theirs, self._nonce, echo)

    def proves(self, hello: Hello) -> bool:
        """Whether an authenticated HELLO proves a new incarnation of the peer."""
        return hello.mine != self.theirs and hello.echo == self._nonce

    def receive(self, hello: Hello) -> Reaction:
        """React to an authenticated HELLO of the peer."""
        met = self.proves(hello)
        if met:
            self.theirs = hello.mine
            self._nonce = self._make_nonce()
        settled = hello.yours == self.mine and hello.mine == self.theirs
        return Reaction(met, None if settled else self.greet(hello.nonce))

    @property
    def ends(self) -> tuple[bytes, bytes]:
        """The two ends, in the order for keys of sent datagrams and in that for received ones."""
        mine, theirs = _packed(self.mine), _packed(self.theirs)
        return mine + theirs, theirs + mine

    def _make_nonce(self) -> int:
        """A nonce that is known only to receivers of a HELLO sent since `theirs` was met."""
        digest = hashlib.blake2s(
            _packed(self.mine) + _packed(self.theirs),
            key=self._secret,
            person=_NONCE,
            digest_size=8,
        )
        return int.from_bytes(digest.digest(), "big") or 1


def _packed(end: End) -> bytes:
    return end.life.to_bytes(8, "big") + end.opening.to_bytes(4, "big")
