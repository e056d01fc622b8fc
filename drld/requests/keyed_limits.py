"""All limits with a bucket for each key at one limiter, and its exchange with peers.

Replication has a socket of its own (`peer_port`), with sessions of its own. The daemon reads it
when a datagram comes, and not at ticks: while a delta waits in a buffer, the request that it tells
of may be admitted twice.

Contact. A limiter sends every peer a message at least each `PING_NS`, if need be an empty delta. A
peer is in contact for `CONTACT_NS` after each of its messages. Only peers in contact are told news.
A limiter keeps no news for a silent peer. Once the peer is heard again, it is told everything, in
parts (`Replica`). A restarted limiter so learns of its own earlier admissions.

A limit whose keys change in a reload starts empty while the daemon runs. It asks its peers for
everything, by an empty delta. There is no acknowledgement of that, so it asks `ASKS` times.

Freezing. A frozen daemon finds old deltas in its socket. It would date their cells at the present,
and believe buckets fuller, for as long as their keys use their rates. So after a time in which
peers fold cells away, it heeds no delta before the socket is empty, and asks for everything.

Acknowledgement. The session numbers datagrams. A message of a replica may take several datagrams,
and is acknowledged once all of them are.

Input is hostile until checked. The codec bounds a datagram. A delta of a limit that is not here
(`limit`), or whose settings differ (`settings`), is refused and counted. So are keys without room
(`Table`). An insider can spend the tokens of any key, as it could by answering requests
(docs/security.md).

It is pure: the time and the source of randomness are given, and messages go to a `Messenger`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from drld.gossip.wire.control_codec import Kind
from drld.gossip.wire.message import register
from drld.gossip.wire.messenger import Messenger
from drld.gossip.wire.session import Met
from drld.model import NS_PER_S
from drld.node import next_due_ns
from drld.police.policer import Policer
from drld.requests.buckets.bucket import Key
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, Part, of_sender, parts
from drld.requests.buckets.replica import Message, Outgoing
from drld.requests.key_policer import KeyPolicer
from drld.requests.keyed_limit import REPEAT_ROUNDS, KeyedLimit, Terms
from drld.spec import LimitSpec

PING_NS = NS_PER_S
CONTACT_NS = 10 * NS_PER_S
"""Ten pings: at a loss of 40 %, one of 10,000 such times passes without any. A mistake costs a copy
of everything."""
_UNHEEDED = {KIND: "unheeded"}
SWEEP_ROUNDS = 200
"""The rounds in which all buckets are looked at: full ones leave, others come to rest."""
MOST_SWEPT = 500
"""The most buckets that are looked at in a round: up to 3 ms of work, if all come to rest."""
ASKS = 5
"""The number of times that a limit that starts empty asks a peer for everything: at a loss of 40 %,
all are lost once in a hundred times."""
_ANSWER_ROUNDS = 2 * ASKS * REPEAT_ROUNDS
"""The rounds in which a repeated question of a peer is taken as answered."""
_MODULUS = 2**32
_ORIGIN = _MODULUS - 1
_PING = Part(0, Form.LEDGER, (), ())
"""An empty delta of no limit."""

register(DeltaCodec(KIND))


@dataclass(slots=True)
class _Peer:
    """The state of the exchange with one peer."""

    origin: int = 0
    heard_ns: int | None = None
    """The time of the peer's last message; None: none has come since the daemon started."""
    sent_ns: int | None = None
    contact: bool = False
    told_ns: dict[int, int] = field(default_factory=dict)
    """The time of the peer's last question for everything of a limit, by the limit's id."""
    waiting: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """The datagrams that are not acknowledged: by number, the time, the limit and the message."""
    left: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The number of unacknowledged datagrams of each message."""

    def sent(self, number: int, limit_id: int, message: int, now_ns: int) -> None:
        """Note that a datagram of a message has gone out."""
        self.waiting[number] = now_ns, limit_id, message
        self.left[limit_id, message] += 1

    def acknowledged(self, limit_id: int, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return the messages of a limit that are complete with these acknowledged datagrams."""
        done = []
        for number in numbers:
            if (found := self.waiting.get(number)) is None or found[1] != limit_id:
                continue
            del self.waiting[number]
            message = found[1:]
            if message in self.left:
                self.left[message] -= 1
                if not self.left[message]:
                    del self.left[message]
                    done.append(message[1])
        return tuple(done)

    def forget(self, before_ns: int) -> None:
        """Stop waiting for the acknowledgements of older datagrams; their news were repeated."""
        for number, (sent_ns, *message) in list(self.waiting.items()):
            if sent_ns >= before_ns:
                break
            del self.waiting[number]
            self.left.pop((message[0], message[1]), None)


class KeyedLimits:
    """The limits with a bucket for each key, of one daemon."""

    def __init__(self, terms: Terms, rng: Random) -> None:
        self.limits: dict[int, KeyedLimit] = {}
        """The limits by id."""
        self.due_ns = 0
        """The time of the next round, ns."""
        self._terms = terms
        self._rng = rng
        self._messenger: Messenger | None = None
        self._peers: dict[str, _Peer] = {}
        self._now_ns: int | None = None
        """The time of the last look into the socket, ns; None: there was none."""
        self._heeds = True
        """Whether the deltas in the socket are young enough."""
        self.on_urgent: Callable[[], None] = lambda: None
        """Called when news cannot wait for the round; `tick` sends them."""
        self._outgoing: list[tuple[int, Outgoing]] = []
        self._asks: dict[int, int] = {}
        """The rounds in which limits still ask their peers for everything, by id."""

    @property
    def members(self) -> int:
        """The number of limiters in the fleet."""
        return self._terms.members

    # Configuration

    def connect(self, messenger: Messenger, name: str) -> None:
        """Exchange news through this socket from now on, as the limiter of this name; called before
        there are limits."""
        self._messenger = messenger
        self._terms = self._terms._replace(origin=_origin(messenger.life), name=name)

    def configure(
        self, peers: Collection[str], interval_ns: int, secret: bytes, now_ns: int
    ) -> None:
        """Use this fleet from now on. Another secret empties all buckets."""
        members = len(peers) + 1
        self._terms = self._terms._replace(interval_ns=interval_ns, members=members, secret=secret)
        self._peers = {peer: self._peers.get(peer) or _Peer() for peer in peers}
        self.replace([keyed.limit for keyed in self.limits.values()], now_ns)

    def replace(self, limits: Iterable[LimitSpec], now_ns: int) -> None:
        """Use these limits from now on; a limit whose keys stay the same keeps its levels."""
        kept = {}
        for limit in limits:
            known = self.limits.get(limit.id)
            if known is not None and known.fits(limit, self._terms):
                known.reconfigure(limit, self._terms, now_ns)
            else:
                known = KeyedLimit(limit, self._terms)
                # What waits to be sent is of other keys, and maybe of another kind of buckets.
                self._outgoing = [it for it in self._outgoing if it[0] != limit.id]
                self._asks[limit.id] = ASKS * REPEAT_ROUNDS
            kept[limit.id] = known
        self.limits = kept
        self._set_contacts()

    # Requests

    def policer(self, limit_id: int, values: bytes, counts: Policer) -> KeyPolicer:
        """Return the policer of the key with these values; `counts` is the limit's own policer."""
        keyed = self.limits[limit_id]
        return KeyPolicer(keyed, keyed.key(values), counts, self._speak)

    def _speak(self, limit_id: int, messages: Outgoing) -> None:
        """Send messages soon; many charges may share a message."""
        if messages:
            self._outgoing.append((limit_id, messages))
        self.on_urgent()

    # The fleet

    def tick(self, now_ns: int) -> None:
        """Receive deltas, send urgent news, and begin a round if it is due."""
        if self._messenger is None:
            return
        if self._now_ns is not None and now_ns - self._now_ns > self._terms.margin_ns:
            self._heeds = False
            self._asks = dict.fromkeys(self.limits, ASKS * REPEAT_ROUNDS)
        self._now_ns = now_ns
        self._messenger.receive(self._take, {} if self._heeds else _UNHEEDED)
        self._heeds |= self._messenger.drained
        outgoing, self._outgoing = self._outgoing, []
        for limit_id, messages in outgoing:
            # A reload may have come between.
            if (keyed := self.limits.get(limit_id)) is not None:
                self._send(keyed, messages, now_ns)
        for keyed in self.limits.values():
            if keyed.replica.pressing:
                self._send(keyed, keyed.replica.urgent(keyed.at(now_ns)), now_ns)
        if now_ns >= self.due_ns:
            self.due_ns = next_due_ns(self.due_ns, now_ns, self._terms.interval_ns)
            self._round(now_ns)

    def _round(self, now_ns: int) -> None:
        silent = [peer for peer in self._peers.values() if peer.contact and _silent(peer, now_ns)]
        for peer in silent:
            peer.contact = False
        if silent:
            self._set_contacts()
        for keyed in self.limits.values():
            self._send(keyed, keyed.replica.round(keyed.at(now_ns), self._rng), now_ns)
        self._ask(now_ns)
        before_ns = now_ns - 2 * REPEAT_ROUNDS * self._terms.interval_ns
        for name, peer in self._peers.items():
            peer.forget(before_ns)
            if self.limits and (peer.sent_ns is None or now_ns - peer.sent_ns >= PING_NS):
                self._say(name, peer, _PING, now_ns)
        for keyed in self.limits.values():
            rows = min(len(keyed.replica.buckets) // SWEEP_ROUNDS + 1, MOST_SWEPT)
            keyed.replica.sweep(keyed.at(now_ns), rows)

    def _ask(self, now_ns: int) -> None:
        """Ask the peers in contact for everything of the limits that started empty."""
        for limit_id, rounds in list(self._asks.items()):
            keyed = self.limits.get(limit_id)
            if keyed is not None and rounds % REPEAT_ROUNDS == 0:
                part = Part(limit_id, keyed.form, (), (), keyed.digest)
                for name, peer in self._peers.items():
                    if peer.contact:
                        self._say(name, peer, part, now_ns)
            self._asks[limit_id] -= 1
            if keyed is None or rounds <= 1:
                del self._asks[limit_id]

    def _take(self, name: str, kind: int, body: Any) -> None:
        """Take a message of a peer."""
        peer, now_ns = self._peers.get(name), self._now_ns
        assert now_ns is not None
        if peer is None or kind not in (Kind.HELLO, KIND):
            self._refuse("kind" if peer else "address")
            return
        peer.heard_ns = now_ns
        if isinstance(body, Met):
            self._begin(name, peer, body.life)
        if not peer.contact:
            peer.contact = True
            self._set_contacts()
        if isinstance(body, Part) and body.limit_id:
            self._take_part(name, peer, body, now_ns)

    def _begin(self, name: str, peer: _Peer, life: int) -> None:
        """Begin a session with an incarnation of a peer, which may know nothing."""
        peer.origin = _origin(life)
        peer.waiting.clear()
        peer.left.clear()
        peer.sent_ns = None
        if peer.contact:
            for keyed in self.limits.values():
                keyed.replica.returned(name)

    def _take_part(self, name: str, peer: _Peer, part: Part, now_ns: int) -> None:
        keyed = self.limits.get(part.limit_id)
        if keyed is None:
            self._refuse("limit")
            return
        if (part.form, part.digest) != (keyed.form, keyed.digest):
            self._refuse("settings")
            return
        if not part.deltas and not part.received:
            answered_ns = _ANSWER_ROUNDS * self._terms.interval_ns
            if now_ns - peer.told_ns.get(part.limit_id, -answered_ns) >= answered_ns:
                peer.told_ns[part.limit_id] = now_ns
                keyed.replica.returned(name)
            return
        deltas: dict[Key, Any] = dict(of_sender(part, peer.origin))
        # A replica's numbers begin at 1; a message without deltas needs no acknowledgement.
        number = (part.number + 1) % _MODULUS if part.deltas else 0
        received = peer.acknowledged(part.limit_id, ((it - 1) % _MODULUS for it in part.received))
        message = Message(number, deltas, received)
        self._send(keyed, keyed.replica.receive(name, message, keyed.at(now_ns)), now_ns)

    def _send(self, keyed: KeyedLimit, messages: Outgoing, now_ns: int) -> None:
        limit_id = keyed.limit.id
        for name, message in messages:
            if (peer := self._peers.get(name)) is None:
                continue
            for part in parts(message, keyed.form, limit_id, self._terms.origin):
                number = self._say(name, peer, replace(part, digest=keyed.digest), now_ns)
                # What could not be sent stays unacknowledged, and is repeated.
                if number is not None and part.deltas and message.number:
                    peer.sent(number, limit_id, message.number, now_ns)

    def _say(self, name: str, peer: _Peer, part: Part, now_ns: int) -> int | None:
        assert self._messenger is not None
        peer.sent_ns = now_ns
        return self._messenger.send(name, KIND, part)

    def _refuse(self, reason: str) -> None:
        assert self._messenger is not None
        self._messenger.refuse(reason)

    def _set_contacts(self) -> None:
        contacts = [name for name, peer in self._peers.items() if peer.contact]
        for keyed in self.limits.values():
            keyed.replica.set_peers(contacts)

    # Reports

    @property
    def contacts(self) -> int:
        """The number of peers in contact."""
        return sum(peer.contact for peer in self._peers.values())


def _origin(life: int) -> int:
    """Return the origin of an incarnation's cells; 0 means no origin."""
    return life & _ORIGIN or 1


def _silent(peer: _Peer, now_ns: int) -> bool:
    return peer.heard_ns is None or now_ns - peer.heard_ns > CONTACT_NS
