"""A limiter's gossip socket (`drld.gossip.transport.Transport`) on the simulated network.

Messages cross it as values. A fabric's values are those of the wire to the last bit. Codecs, tags
and handshakes are tested elsewhere; `testbed.sim.lives` has the effect of sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from drld.gossip.wire.control_codec import Kind
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import LONG_TAG_SIZE, codec_of
from drld.gossip.wire.messenger import Deliver
from drld.gossip.wire.session import Met
from drld.gossip.wire.update_codec import size
from testbed.sim.lives import Lives, Sealed
from testbed.sim.network import Network
from testbed.tcp.clock import Clock

_HEADERS = 20 + 8
"""Bytes of the IP and UDP headers."""


class Content(NamedTuple):
    """The contents of a datagram."""

    kind: int
    body: Any


Datagram: TypeAlias = Sealed[Content]


class Mailbox:
    """Sends and receives the messages of one limiter."""

    def __init__(self, name: str, clock: Clock, network: Network[Datagram]) -> None:
        self._name = name
        self._clock = clock
        self._network = network
        self._lives: Lives[Content] = Lives()
        self._peers: Collection[str] | None = None
        """The limiters whose messages it takes; None: all of the network."""
        self.sent = 0
        self.received = 0
        self.rejected: Counter[str] = Counter()
        self.other_versions: dict[str, int] = {}
        self.refused_kinds: dict[str, tuple[int, str]] = {}
        self.drained = True
        self.control_sent = 0
        self.bytes_sent = 0
        """Bytes of the sent IP packets."""

    def restart(self) -> None:
        """Begin another life of the daemon."""
        self._lives.restart()

    @property
    def life(self) -> int:
        """The incarnation of the daemon."""
        return self._lives.mine

    def send(self, peer: str, kind: int, body: Any) -> int | None:
        """Send a message to a peer; it has no number, because no caller here needs one."""
        codec = codec_of(kind)
        if codec.numbered:
            self.control_sent += 1
            length = len(codec.encode(body, 0, 0)) + LONG_TAG_SIZE
        else:
            self.sent += len(body)
            length = size(len(body))
        self.bytes_sent += length + _HEADERS
        sealed = self._lives.seal(peer, Content(kind, body))
        self._network.send(self._name, peer, sealed, self._clock.now_ns)
        return None

    def receive(self, deliver: Deliver, refused: Mapping[int, str] = MappingProxyType({})) -> None:
        """Deliver all that has arrived, but for messages of refused kinds."""
        for peer, datagram in self._network.receive(self._name, self._clock.now_ns):
            if self._peers is not None and peer not in self._peers:
                self.refuse("address")
                continue
            opened = self._lives.open(peer, datagram)
            if opened.answer is not None:
                self._network.send(self._name, peer, opened.answer, self._clock.now_ns)
            if opened.met is not None:
                deliver(peer, Kind.HELLO, Met(opened.met))
            if opened.content is None:
                continue
            kind, body = opened.content
            if kind in refused:
                self.refuse(refused[kind])
                continue
            if not codec_of(kind).numbered:
                self.received += len(body)
            deliver(peer, kind, body)

    def refuse(self, reason: str) -> None:
        """Count what was delivered and had no effect."""
        self.rejected[reason] += 1

    def update_peers(self, peers: Mapping[str, Any]) -> Callable[[], None]:
        """Refuse messages of all others from now on; the network has the addresses."""
        undo = partial(setattr, self, "_peers", self._peers)
        self._peers = frozenset(peers)
        return undo

    def set_ring(self, ring: KeyRing) -> None:
        """Nothing to do: there are no tags."""

    def close(self) -> None:
        """Nothing to do."""
