"""A limiter's gossip socket (`drld.gossip.transport.Transport`) on the simulated network.

Updates cross it as values: a fabric's are what the wire carries to the last bit, and codec and tags
are tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drld.gossip.wire import size
from drld.model import Update
from testbed.sim.clock import Clock
from testbed.sim.network import Network

_HEADERS = 20 + 8
"""Bytes of the IP and UDP headers."""

Datagram = Sequence[Update]


class Mailbox:
    """Sends and receives the updates of one limiter."""

    def __init__(self, name: str, clock: Clock, network: Network[Datagram]) -> None:
        self._name = name
        self._clock = clock
        self._network = network
        self.sent = 0
        self.received = 0
        self.bytes_sent = 0
        """Of IP packets."""

    def send(self, peer: str, updates: Sequence[Update]) -> None:
        """Send updates to a peer."""
        self.sent += len(updates)
        self.bytes_sent += size(len(updates)) + _HEADERS
        self._network.send(self._name, peer, updates, self._clock.now_ns)

    def receive(self) -> Iterator[tuple[str, Update]]:
        """All that has arrived."""
        for peer, updates in self._network.receive(self._name, self._clock.now_ns):
            self.received += len(updates)
            for update in updates:
                yield peer, update

    def update_peers(self, peers: Mapping[str, Any]) -> None:
        """Nothing to do: the network knows everybody."""

    def close(self) -> None:
        """Nothing to do."""
