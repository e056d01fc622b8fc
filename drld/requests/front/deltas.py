"""The second UDP socket: the exchange of limiters about keys (a shell, no decisions).

The daemon opens it with the first limit with `match.per`, so a daemon without such limits needs no
second port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from time import thread_time

import trio

from drld.errors import ConfigError
from drld.gossip.transport import Transport
from drld.gossip.wire.keyring import KeyRing
from drld.model import NS_PER_S
from drld.requests.keyed_limits import KeyedLimits
from drld.requests.keys import fleet_secret, ring_of_deltas
from drld.requests.spec import RequestsSpec
from drld.spec import LimiterSpec

GAP_S = 0.001
"""The time between two looks into the socket. It bounds the datagrams that strangers can make a
limiter send (`drld.gossip.wire.channel`)."""
REST = 3
"""After a look at which most datagrams were refused, the next look waits this many times as long as
the look took. So refused datagrams use at most a quarter of a processor."""
LONGEST_REST_S = 0.025
"""News wait at most this long: three times the 8 ms that a look works (`drld.gossip.transport`)."""
MOST_DELIVERED = 12 << 10
"""The bytes of messages after which a look ends: some 500 keys, which take 5 to 15 ms if they are
fresh. A flood of fresh keys at a peer fills the buffer, and requests waited here until all were
taken."""


class Deltas:
    """The socket, and the limits that use it."""

    def __init__(self, path: Path, keyed: KeyedLimits, clock: Callable[[], int]) -> None:
        """Make the exchange.

        Args:
            path: the file of the configuration, for error messages.
            keyed: the limits with keys.
            clock: monotonic, ns.
        """
        self.transport: Transport | None = None
        """None: no limit has needed it yet."""
        self._path = path
        self._keyed = keyed
        self._clock = clock
        self._opened = trio.Event()
        self._waiting = trio.CancelScope()
        """Ends when news must be sent before the next round."""
        keyed.on_urgent = self._wake

    def prepare(self, spec: LimiterSpec, ring: KeyRing) -> Callable[[], object]:
        """Prepare for the limits and peers of a configuration; return a function that undoes it.

        Raises:
            ConfigError: the port cannot be bound, or a peer has no such port; nothing is changed.
        """
        if self.transport is None:
            if not any(limit.policy.keyed for limit in spec.limits):
                return lambda: None
            transport = self._open(spec, ring)
            self._keyed.connect(transport, spec.name)
            self.transport = transport
            self._opened.set()
        return self.transport.update_peers(self._addresses(spec))

    def adopt(self, spec: LimiterSpec, ring: KeyRing) -> None:
        """Use the fleet of a configuration from now on, after `prepare`."""
        if self.transport is not None and ring_of_deltas(ring) != self.transport.ring:
            self.transport.set_ring(ring_of_deltas(ring))
        peers = [peer.name for peer in spec.peers] if self.transport else []
        secret = fleet_secret(ring)
        self._keyed.configure(peers, spec.gossip.interval_ns, secret, self._clock())

    async def run(self) -> None:
        """Receive and tell for as long as the daemon runs."""
        await self._opened.wait()
        transport = self.transport
        assert transport is not None
        with closing(transport):
            while True:
                delay_s = max(self._keyed.due_ns - self._clock(), 0) / NS_PER_S
                # A scope that `_wake` has cancelled before the wait ends the wait at once.
                self._waiting.deadline = trio.current_time() + delay_s
                with self._waiting:
                    await trio.lowlevel.wait_readable(transport.fileno())
                self._waiting = trio.CancelScope()
                await trio.sleep(self._look(transport))

    def _look(self, transport: Transport) -> float:
        """Receive and tell; return the time until the next look, s."""
        refused, taken = transport.rejected.total(), transport.control_received
        begin_s = thread_time()  # Time of work: a busy host delays this process.
        self._keyed.tick(self._clock())
        worked_s = thread_time() - begin_s
        refused, taken = transport.rejected.total() - refused, transport.control_received - taken
        if refused <= taken:
            return GAP_S
        return min(max(GAP_S, REST * worked_s), LONGEST_REST_S)

    def _wake(self) -> None:
        self._waiting.cancel()

    def _open(self, spec: LimiterSpec, ring: KeyRing) -> Transport:
        host, port = self._address(spec, spec.listen, "limiter.listen")
        try:
            ring = ring_of_deltas(ring)
            return Transport((host, port), spec.name, {}, ring, most_delivered=MOST_DELIVERED)
        except OSError as error:
            reason = f"cannot bind {host!r}, port {port}: {error.strerror}"
            raise ConfigError([f"{self._path}: requests.peer_port: {reason}"]) from error

    def _addresses(self, spec: LimiterSpec) -> Mapping[str, tuple[str, int]]:
        """Return the addresses of the peers' second sockets."""
        return {
            peer.name: self._address(spec, peer.address, f"peer.{peer.name}.address")
            for peer in spec.peers
        }

    def _address(self, spec: LimiterSpec, gossip: tuple[str, int], key: str) -> tuple[str, int]:
        host, port = gossip
        port = spec.plane(RequestsSpec).port_of_keys(port)
        if port > 65535:
            reason = f"is required: there is no port above that of {key}"
            raise ConfigError([f"{self._path}: requests.peer_port: {reason}"])
        return host, port
