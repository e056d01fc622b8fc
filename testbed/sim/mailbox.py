"""A limiter's gossip socket (`drld.gossip.transport.Transport`) on the simulated network.

Messages cross it as values. A fabric's values are those of the wire to the last bit. Codecs, tags
and handshakes are tested elsewhere; `testbed.sim.lives` has the effect of sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from drld.gossip.wire.channel import Message
from drld.gossip.wire.control_codec import CONTROL_TAG_SIZE, Control, encode_control
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.session import Met
from drld.gossip.wire.update_codec import size
from drld.model import Update
from testbed.sim.lives import Lives, Sealed
from testbed.sim.network import Network
from testbed.tcp.clock import Clock

_HEADERS = 20 + 8
"""Bytes of the IP and UDP headers."""


class Content(NamedTuple):
    """The contents of a datagram."""

    messages: Sequence[Update | Control]
    fabric: str | None
    """The fabric of updates; None: no updates."""


Datagram: TypeAlias = Sealed[Content]


class Mailbox:
    """Sends and receives the messages of one limiter."""

    def __init__(self, name: str, clock: Clock, network: Network[Datagram]) -> None:
        self._name = name
        self._clock = clock
        self._network = network
        self._lives: Lives[Content] = Lives()
        self._fabric: str | None = None
        self._peers: Collection[str] | None = None
        """None: all limiters of the network."""
        self.sent = 0
        self.received = 0
        self.rejected: Counter[str] = Counter()
        self.drained = True
        self.control_sent = 0
        self.bytes_sent = 0
        """Bytes of IP packets."""

    def restart(self) -> None:
        """Another life of the daemon begins."""
        self._lives.restart()

    @property
    def life(self) -> int:
        """The incarnation of the daemon."""
        return self._lives.mine

    def send(self, peer: str, updates: Sequence[Update]) -> None:
        """Send updates to a peer."""
        self.sent += len(updates)
        self._send(peer, Content(updates, self._fabric), size(len(updates)))

    def send_control(self, peer: str, message: Control) -> None:
        """Send a control message to a peer."""
        self.control_sent += 1
        self._send(
            peer, Content([message], None), len(encode_control(message, 0, 0)) + CONTROL_TAG_SIZE
        )

    def _send(self, peer: str, content: Content, length: int) -> None:
        self.bytes_sent += length + _HEADERS
        sealed = self._lives.seal(peer, content)
        self._network.send(self._name, peer, sealed, self._clock.now_ns)

    def receive(self, *, updates: bool = True) -> Iterator[tuple[str, Message]]:
        """All that has arrived, with updates or without."""
        for peer, datagram in self._network.receive(self._name, self._clock.now_ns):
            if self._peers is not None and peer not in self._peers:
                self.refuse("address")
                continue
            opened = self._lives.open(peer, datagram)
            if opened.answer is not None:
                self._network.send(self._name, peer, opened.answer, self._clock.now_ns)
            if opened.met is not None:
                yield peer, Met(opened.met)
            if opened.content is None:
                continue
            if opened.content.fabric not in (None, self._fabric):
                self.refuse("fabric")
                continue
            for message in opened.content.messages:
                if isinstance(message, Update):
                    if not updates:
                        self.refuse("unheeded")
                        break
                    self.received += 1
                yield peer, message

    def refuse(self, reason: str) -> None:
        """Count a message that was received and had no effect."""
        self.rejected[reason] += 1

    def update_peers(self, peers: Mapping[str, Any]) -> None:
        """Refuse messages of all others from now on; the network has the addresses."""
        self._peers = frozenset(peers)

    def set_fabric(self, fabric: str) -> None:
        """Send and accept updates of this fabric from now on."""
        self._fabric = fabric

    def set_ring(self, ring: KeyRing) -> None:
        """Nothing to do: there are no tags."""

    def close(self) -> None:
        """Nothing to do."""
