"""A channel: one limiter's side of the exchange with one peer. It seals and opens datagrams.

A channel holds a session (`drld.gossip.wire.session`). It seals and opens datagrams with the keys
that follow from the session and the key ring. It does no I/O: the transport moves the bytes.

Turns. The owner drains the socket once a turn. Turns bound the messages that others can make a
limiter send. In a turn, a channel sends one greeting, however many datagrams it refused. It answers
`MAX_ANSWERS` HELLOs, each nonce once. So neither forged messages nor a repeated recording use up
the answers for the peer. A HELLO that proves a new life is always answered. At most one does so in
a turn: no life of a peer is shorter, but a sender with the key could prove lives without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from drld.errors import WireError
from drld.gossip.wire.control_codec import Hello, Kind
from drld.gossip.wire.datagram_tag import CONTROL, HELLO, UPDATE, Tagger, session_secret
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import LONG_TAG_SIZE, codec_of, head_untrusted, number_of
from drld.gossip.wire.replay_window import ReplayWindow
from drld.gossip.wire.sequence import MODULUS
from drld.gossip.wire.session import Met, Session

MAX_ANSWERS = 8
"""Answers to HELLOs of different nonces in a turn. An honest peer needs one. To use up all of them,
an attacker must have recorded as many lives of the peer."""


class Opened(NamedTuple):
    """The content of an accepted datagram."""

    kind: int
    body: Any
    """The message that the codec has read. For a HELLO: `Met`, or None if it changed nothing."""
    answer: bytes | None
    """A datagram to send to the peer; None: there is none."""


class Channel:
    """Seals the messages to one peer, and opens those from it."""

    __slots__ = (
        "_answered",
        "_greeted",
        "_me",
        "_met",
        "_number",
        "_peer",
        "_ring",
        "_taggers",
        "_window",
        "session",
    )

    def __init__(self, me: str, peer: str, session: Session, ring: KeyRing) -> None:
        self.session = session
        self._me = me
        self._peer = peer
        self._greeted = -1
        """The turn of the last greeting."""
        self._answered: tuple[int, set[int]] = -1, set()
        """The turn of the last answer to a HELLO, and the nonces that were answered in it."""
        self._met = -1
        """The turn in which the last session began."""
        self._number = 0
        """The number of the next message of a numbered kind."""
        self._window = ReplayWindow()
        self.set_ring(ring)

    def set_ring(self, ring: KeyRing) -> None:
        """Replace the keys; the session stays."""
        self._ring = ring
        self._taggers: dict[tuple[bytes, int, bool], Tagger] = {}
        """The tagger of each kind of tag, key id and direction (True: to the peer)."""

    def seal(self, kind: int, body: Any) -> bytes | None:
        """A datagram with a message of any kind but HELLO; None: there is no session.

        Raises:
            KeyError: the kind has no codec.
            ValueError: a field of the message is out of its bounds.
        """
        if not self.session.open:
            return None
        codec = codec_of(kind)
        if not codec.numbered:
            return self._seal(UPDATE, codec.encode(body, self._ring.use, 0))
        content = codec.encode(body, self._ring.use, self._number)
        self._number = (self._number + 1) % MODULUS
        return self._seal(CONTROL, content)

    def greet(self, turn: int) -> bytes | None:
        """A HELLO for the peer; None: one was sent in this turn."""
        if turn == self._greeted:
            return None
        self._greeted = turn
        return self._seal_hello(self.session.greet())

    def open_untrusted(
        self, datagram: bytes, turn: int, refused: Mapping[int, str] = MappingProxyType({})
    ) -> Opened:
        """Check and read a datagram that came from the peer's address.

        `refused` are kinds that the owner does not take at present, with the reason of each. Only
        their tag is checked, because a datagram of another session may need an answer.

        Raises:
            WireError: it is not from the peer, or malformed. It has no effect, but
                `answer_refused` may have an answer.
        """
        codec, key_id = head_untrusted(datagram)
        self._ring.key(key_id)
        tags = HELLO if codec.kind == Kind.HELLO else CONTROL if codec.numbered else UPDATE
        size = self._tag_size(tags)
        codec.check_length_untrusted(len(datagram) - size)
        # The tag is checked before the content, so that a forgery costs little.
        self._tagger(tags, key_id, sends=False).check_untrusted(datagram)
        if codec.kind in refused:
            raise WireError(refused[codec.kind], f"messages of kind {codec.kind} are refused now")
        content = datagram[:-size]
        body = codec.decode_untrusted(content)
        if isinstance(body, Hello):
            return self._open_hello_untrusted(body, turn)
        if codec.numbered:
            self._window.check_untrusted(number_of(content))
        return Opened(codec.kind, body, None)

    def _open_hello_untrusted(self, hello: Hello, turn: int) -> Opened:
        if turn == self._met and self.session.proves(hello):
            raise WireError("hasty", "another life of the peer began in the same turn")
        met, answer = self.session.receive(hello)
        if met:
            self._met = turn
            self._number = 0
            self._window = ReplayWindow()
            self.set_ring(self._ring)
        body = Met(hello.mine.life) if met else None
        if answer is None or not (met or self._may_answer(hello.nonce, turn)):
            return Opened(Kind.HELLO, body, None)
        return Opened(Kind.HELLO, body, self._seal_hello(answer))

    def answer_refused(self, datagram: bytes, reason: str, turn: int) -> bytes | None:
        """The HELLO with which to answer a refused datagram; None: no answer.

        A wrong tag or session may mean that this limiter or the peer has restarted. A HELLO belongs
        to no session.
        """
        if reason not in ("session", "tag") or datagram[0] & 15 == Kind.HELLO:
            return None
        return self.greet(turn)

    def _may_answer(self, nonce: int, turn: int) -> bool:
        if self._answered[0] != turn:
            self._answered = turn, set()
        nonces = self._answered[1]
        if nonce in nonces or len(nonces) == MAX_ANSWERS:
            return False
        nonces.add(nonce)
        return True

    def _seal_hello(self, hello: Hello) -> bytes:
        return self._seal(HELLO, codec_of(Kind.HELLO).encode(hello, self._ring.use, 0))

    def _seal(self, kind: bytes, content: bytes) -> bytes:
        return self._tagger(kind, self._ring.use, sends=True).seal(content)

    def _tagger(self, kind: bytes, key_id: int, *, sends: bool) -> Tagger:
        tagger = self._taggers.get((kind, key_id, sends))
        if tagger is None:
            if kind != HELLO and not self.session.open:
                raise WireError("session", "must follow a handshake")
            ends = b"" if kind == HELLO else self.session.ends[not sends]
            names = (self._me, self._peer) if sends else (self._peer, self._me)
            secret = session_secret(self._ring.key(key_id), *names, ends)
            tagger = Tagger(secret, kind, self._tag_size(kind))
            self._taggers[kind, key_id, sends] = tagger
        return tagger

    def _tag_size(self, kind: bytes) -> int:
        return self._ring.tag_size if kind == UPDATE else LONG_TAG_SIZE
