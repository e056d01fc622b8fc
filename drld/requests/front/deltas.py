"""The second UDP socket: what the limiters tell each other of each key (a shell, no decisions).

It is opened when the first limit with `match.per` comes, so that others do without its port.
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
"""Between two looks into the socket. It bounds what strangers can make a limiter send: so much a
look (`drld.gossip.wire.channel`)."""
REST = 3
"""After a look at which most datagrams were refused, the next waits for so many times as long as it
worked. So strangers have a quarter of a processor."""
LONGEST_REST_S = 0.025
"""News wait for so long at most: a look works for 8 ms (`drld.gossip.transport`)."""


class Deltas:
    """The socket, and the limits that it is for."""

    def __init__(self, path: Path, keyed: KeyedLimits, clock: Callable[[], int]) -> None:
        """`path` is the configuration's, for messages; `clock` is monotonic, ns."""
        self.transport: Transport | None = None
        """None: there has been no limit that needs it."""
        self._path = path
        self._keyed = keyed
        self._clock = clock
        self._opened = trio.Event()
        self._waiting = trio.CancelScope()
        """Ends when something must be sent before the next round."""
        keyed.on_urgent = self._wake

    def prepare(self, spec: LimiterSpec, ring: KeyRing) -> Callable[[], object]:
        """Be ready for the limits and peers of a configuration; return what takes that back.

        Raises:
            ConfigError: the port cannot be bound, or a peer has no such port; nothing is changed.
        """
        if self.transport is None:
            if not any(limit.policy.keyed for limit in spec.limits):
                return lambda: None
            transport = self._open(spec, ring)
            self._keyed.connect(transport)
            self.transport = transport
            self._opened.set()
        return self.transport.update_peers(self._addresses(spec))

    def adopt(self, spec: LimiterSpec, ring: KeyRing) -> None:
        """Have the fleet of a configuration from now on, after `prepare`."""
        if self.transport is not None and ring_of_deltas(ring) != self.transport.ring:
            self.transport.set_ring(ring_of_deltas(ring))
        peers = [peer.name for peer in spec.peers] if self.transport else []
        secret = fleet_secret(ring)
        self._keyed.configure(peers, spec.gossip.interval_ns, secret, self._clock())

    async def run(self) -> None:
        """Receive and tell, for as long as the daemon runs."""
        await self._opened.wait()
        transport = self.transport
        assert transport is not None
        with closing(transport):
            while True:
                delay_s = max(self._keyed.due_ns - self._clock(), 0) / NS_PER_S
                # One that was cancelled while nobody waited in it does not wait at all.
                self._waiting.deadline = trio.current_time() + delay_s
                with self._waiting:
                    await trio.lowlevel.wait_readable(transport.fileno())
                self._waiting = trio.CancelScope()
                await trio.sleep(self._look(transport))

    def _look(self, transport: Transport) -> float:
        """Receive and tell; return how long the next look waits, s."""
        refused, taken = transport.rejected.total(), transport.control_received
        begin_s = thread_time()  # Work, and not what a busy host lets this process wait.
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
            return Transport((host, port), spec.name, {}, ring_of_deltas(ring))
        except OSError as error:
            reason = f"cannot bind {host!r}, port {port}: {error.strerror}"
            raise ConfigError([f"{self._path}: requests.peer_port: {reason}"]) from error

    def _addresses(self, spec: LimiterSpec) -> Mapping[str, tuple[str, int]]:
        """Where the peers have this socket."""
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
