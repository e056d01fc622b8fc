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

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from drld.errors import WireError
from drld.gossip.wire.control_codec import (
    CONTROL_TAG_SIZE,
    Control,
    Hello,
    Kind,
    decode_control_untrusted,
    encode_control,
)
from drld.gossip.wire.datagram_tag import CONTROL, HELLO, UPDATE, Tagger, session_secret
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.replay_window import ReplayWindow
from drld.gossip.wire.sequence import MODULUS
from drld.gossip.wire.session import Met, Session
from drld.gossip.wire.update_codec import (
    UPDATE_KINDS,
    check_length_untrusted,
    decode_untrusted,
    encode,
    head_untrusted,
)
from drld.model import Update

Message: TypeAlias = Update | Control | Met

MAX_ANSWERS = 8
"""To HELLOs of different nonces, in a turn. An honest peer needs one; who wants to leave none to it
must have recorded as many of its lives."""


class Opened(NamedTuple):
    """What came of a datagram."""

    messages: Sequence[Message]
    answer: bytes | None
    """A datagram for the peer."""


class Channel:
    """What goes to, and comes from, one peer."""

    __slots__ = (
        "_answered",
        "_fabric",
        "_greeted",
        "_incoming",
        "_me",
        "_met",
        "_number",
        "_outgoing",
        "_peer",
        "_ring",
        "_window",
        "session",
    )

    def __init__(self, me: str, peer: str, session: Session, ring: KeyRing, fabric: str) -> None:
        """`fabric` is that of the updates."""
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
        """Of the next control message."""
        self._window = ReplayWindow()
        self.set_fabric(fabric)
        self.set_ring(ring)

    def set_fabric(self, fabric: str) -> None:
        """Updates are of this one from now on; the session stays."""
        self._fabric = fabric

    def set_ring(self, ring: KeyRing) -> None:
        """These are the keys from now on; the session stays."""
        self._ring = ring
        self._outgoing: dict[bytes, Tagger] = {}
        """By kind, with the key in use."""
        self._incoming: dict[tuple[int, bytes], Tagger] = {}
        """By key id and kind."""

    def seal_updates(self, updates: Sequence[Update]) -> bytes | None:
        """A datagram with one update or several; None: there is no session."""
        if not self.session.open:
            return None
        use = self._ring.use
        bodies = b"".join([encode(update, use, self._fabric) for update in updates])
        return self._outgoing_tagger(UPDATE).seal(bodies)

    def seal_control(self, message: Control) -> bytes | None:
        """A datagram with a control message; None: there is no session."""
        if not self.session.open:
            return None
        number, self._number = self._number, (self._number + 1) % MODULUS
        content = encode_control(message, self._ring.use, number)
        return self._outgoing_tagger(CONTROL).seal(content)

    def greet(self, turn: int) -> bytes | None:
        """A HELLO; None: there was one in this turn."""
        if turn == self._greeted:
            return None
        self._greeted = turn
        return self._seal_hello(self.session.greet())

    def open_untrusted(self, datagram: bytes, turn: int, *, updates: bool = True) -> Opened:
        """Find out what a datagram from the peer's address says.

        Without `updates` those are refused as `unheeded`, unread but for their tag: it may be of
        another session, and answered.

        Raises:
            WireError: it is not the peer's, or not as it must be, and has no effect; but there may
                be an `answer_refused`.
        """
        kind, key_id = head_untrusted(datagram)
        key = self._ring.key(key_id)
        # Tags come first: a forgery is to cost as little as can be.
        if kind in UPDATE_KINDS.values():
            tag_size = self._ring.tag_size
            check_length_untrusted(datagram, tag_size)
            self._incoming_tagger(key_id, key, UPDATE).check_untrusted(datagram)
            if not updates:
                raise WireError("unheeded", "no updates are taken at present")
            return Opened(decode_untrusted(datagram, tag_size, self._fabric), None)
        tags = HELLO if kind == Kind.HELLO else CONTROL
        self._incoming_tagger(key_id, key, tags).check_untrusted(datagram)
        message, number = decode_control_untrusted(datagram)
        if isinstance(message, Hello):
            return self._open_hello_untrusted(message, turn)
        self._window.check_untrusted(number)
        return Opened([message], None)

    def _open_hello_untrusted(self, hello: Hello, turn: int) -> Opened:
        if turn == self._met and self.session.proves(hello):
            raise WireError("hasty", "another life of the peer has begun just now")
        met, answer = self.session.receive(hello)
        if met:
            self._met = turn
            self._number = 0
            self._window = ReplayWindow()
            self.set_ring(self._ring)
        messages = [Met(hello.mine.life)] if met else []
        if answer is None or not (met or self._may_answer(hello.nonce, turn)):
            return Opened(messages, None)
        return Opened(messages, self._seal_hello(answer))

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
        return self._outgoing_tagger(HELLO).seal(encode_control(hello, self._ring.use, 0))

    def _outgoing_tagger(self, kind: bytes) -> Tagger:
        tagger = self._outgoing.get(kind)
        if tagger is None:
            ends = b"" if kind == HELLO else self.session.ends[0]
            secret = session_secret(self._ring.sealing, self._me, self._peer, ends)
            tagger = self._outgoing[kind] = Tagger(secret, kind, self._tag_size(kind))
        return tagger

    def _incoming_tagger(self, key_id: int, key: bytes, kind: bytes) -> Tagger:
        tagger = self._incoming.get((key_id, kind))
        if tagger is None:
            if kind != HELLO and not self.session.open:
                raise WireError("session", "there is none yet")
            ends = b"" if kind == HELLO else self.session.ends[1]
            secret = session_secret(key, self._peer, self._me, ends)
            tagger = Tagger(secret, kind, self._tag_size(kind))
            self._incoming[key_id, kind] = tagger
        return tagger

    def _tag_size(self, kind: bytes) -> int:
        return self._ring.tag_size if kind == UPDATE else CONTROL_TAG_SIZE
