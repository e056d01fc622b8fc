"""One limiter's end of the way to one peer: turns messages into datagrams and back.

A channel holds a session (`drld.gossip.wire.session`). It seals and opens datagrams with the keys
that follow from the session and the key ring. It does no I/O: the transport moves the bytes.

Turns. A turn is one draining of the socket, which the owner counts. Turns bound what others can
make a limiter send. In a turn a channel sends one greeting, however many datagrams did not fit. It
answers `MAX_ANSWERS` HELLOs, each nonce once. A forger's messages do not use up the peer's answers,
nor does a recorded HELLO that is repeated. A HELLO that has just proved itself is always answered.
One proves itself in a turn, because no two lives of a peer are that short; a sender that can prove
to be the peer could do so as fast as it is answered.
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
"""To HELLOs of different nonces, in a turn. An honest peer needs one. An attacker that wants to use
up all must have recorded as many lives of it."""


class Opened(NamedTuple):
    """What came of a datagram."""

    kind: int
    body: Any
    """What the codec of the kind has read. Of a HELLO: `Met`, or None if it changed nothing."""
    answer: bytes | None
    """A datagram for the peer."""


class Channel:
    """What goes to, and comes from, one peer."""

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
        """The turn of the last answer, and the nonces that have been answered in it."""
        self._met = -1
        """The turn in which a life of the peer was met last."""
        self._number = 0
        """Of the next message of a numbered kind."""
        self._window = ReplayWindow()
        self.set_ring(ring)

    def set_ring(self, ring: KeyRing) -> None:
        """These are the keys from now on; the session stays."""
        self._ring = ring
        self._taggers: dict[tuple[bytes, int, bool], Tagger] = {}
        """By kind, key id, and whether they are for what is sent."""

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
        """A HELLO; None: there was one in this turn."""
        if turn == self._greeted:
            return None
        self._greeted = turn
        return self._seal_hello(self.session.greet())

    def open_untrusted(
        self, datagram: bytes, turn: int, refused: Mapping[int, str] = MappingProxyType({})
    ) -> Opened:
        """Find out what a datagram from the peer's address says.

        `refused` are kinds that are not taken at present, and the reason of each. Of these only the
        tag is read: the datagram may be of another session, and answered.

        Raises:
            WireError: it is not the peer's, or not as it must be, and has no effect; but there may
                be an `answer_refused`.
        """
        codec, key_id = head_untrusted(datagram)
        self._ring.key(key_id)
        tags = HELLO if codec.kind == Kind.HELLO else CONTROL if codec.numbered else UPDATE
        size = self._tag_size(tags)
        codec.check_length_untrusted(len(datagram) - size)
        # The tag comes before the content: a forgery is to cost as little as can be.
        self._tagger(tags, key_id, sends=False).check_untrusted(datagram)
        if codec.kind in refused:
            raise WireError(refused[codec.kind], f"kind {codec.kind} is not taken at present")
        content = datagram[:-size]
        body = codec.decode_untrusted(content)
        if isinstance(body, Hello):
            return self._open_hello_untrusted(body, turn)
        if codec.numbered:
            self._window.check_untrusted(number_of(content))
        return Opened(codec.kind, body, None)

    def _open_hello_untrusted(self, hello: Hello, turn: int) -> Opened:
        if turn == self._met and self.session.proves(hello):
            raise WireError("hasty", "another life of the peer has begun just now")
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
        """What to say when a datagram was refused.

        Where the tag or the session was wrong, the peer may know an end of this channel that is
        gone, or be one that this channel does not know. A HELLO is of no session.
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
                raise WireError("session", "there is none yet")
            ends = b"" if kind == HELLO else self.session.ends[not sends]
            names = (self._me, self._peer) if sends else (self._peer, self._me)
            secret = session_secret(self._ring.key(key_id), *names, ends)
            tagger = Tagger(secret, kind, self._tag_size(kind))
            self._taggers[kind, key_id, sends] = tagger
        return tagger

    def _tag_size(self, kind: bytes) -> int:
        return self._ring.tag_size if kind == UPDATE else LONG_TAG_SIZE
