"""The front of one broker: it accepts the broker's clients and has their connections."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Collection, Iterable

from drld.errors import DatapathError
from drld.messages.front.arrival import Stamps
from drld.messages.front.coarse_stamps import ReadStamps
from drld.messages.front.connection import Connection
from drld.messages.front.deadlines import Deadline
from drld.messages.front.journal import Journal
from drld.messages.front.listeners import BACKLOG
from drld.messages.front.memory import Memory
from drld.messages.front.pump import Pump
from drld.messages.front.reactor import READ
from drld.messages.front.shared import Shared
from drld.messages.front.succession import Succession
from drld.messages.protocols import PROTOCOLS
from drld.messages.spec import BrokerSpec
from drld.messages.topics import TopicCache

_ACCEPTED = 16
"""Connections that are accepted from a socket in a turn."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SCARCE_NS = 100_000_000
"""Time until the next try to accept when the host lacks descriptors or memory."""


class BrokerFront:
    """The place where the clients of one broker connect."""

    def __init__(
        self, spec: BrokerSpec, pump: Pump, stamps: Stamps, counts: Counter[str] | None = None
    ) -> None:
        """Listen nowhere yet.

        Args:
            spec: the broker.
            pump: moves the frames of its connections.
            stamps: the source of arrival times for TCP; drld dates the frames of unix sockets when
                it reads them.
            counts: counts of the broker that go on; None: they begin with 0.
        """
        protocol = PROTOCOLS[spec.protocol]
        self.spec = spec
        self.stamps = stamps
        self.journal = Journal(spec.name, counts)
        self.memory = Memory(spec.hold)
        self.connections: set[Connection] = set()
        self._pump = pump
        self._unstamped = ReadStamps()
        self._listeners: dict[socket.socket, Stamps] = {}
        """The sockets on which clients connect, each with its source of arrival times."""
        self._resting: dict[socket.socket, Deadline] = {}
        """The sockets that drld does not watch for a moment, and the end of this moment."""
        succession = Succession(one_per_client=protocol.one_per_client)
        self._shared = Shared(
            spec.name,
            protocol,
            pump,
            self.memory,
            self.journal,
            succession,
            TopicCache(protocol.topic),
        )

    def change(self, spec: BrokerSpec, stamps: Stamps) -> None:
        """Take over other settings: the bounds at once, the others for new connections."""
        self.spec = spec
        self.stamps = stamps
        self.memory.hold = spec.hold
        self.memory.wake()
        self._pump.wake()

    def keep(self, listeners: Collection[socket.socket]) -> None:
        """Accept clients on none but these sockets; the others stay open."""
        for listener in [*self._listeners]:
            if listener not in listeners:
                self._unwatch(listener)

    def listen(self, listeners: Iterable[socket.socket]) -> None:
        """Accept clients on these sockets, too; none of them blocks."""
        for listener in listeners:
            stamps = self._source(listener)
            before = self._listeners.get(listener)
            if before is stamps:
                continue
            if before is not None:
                self._unwatch(listener)
            try:
                stamps.watch(listener)
            except DatapathError as error:
                self.journal.note("unstamped", f"messages are charged when read: {error}")
                stamps = self._unstamped
            self._listeners[listener] = stamps
            self._watch(listener)

    def empty(self, listeners: Iterable[socket.socket]) -> None:
        """Accept all clients that have connected to sockets that are to be closed."""
        for listener in listeners:
            # No more of them can have waited; others may connect all the time.
            for _ in range(BACKLOG + 1):
                if listener not in self._listeners or not self._accept_one(listener):
                    break
        self._pump.wake()

    def leave(self) -> None:
        """Accept no more clients, and end each connection when nothing of it waits."""
        self.keep(())
        for connection in [*self.connections]:
            connection.leave()
        self._pump.wake()

    def fail(self) -> int:
        """End all connections now; return the number of frames that waited."""
        waiting = sum(len(connection.lane) for connection in self.connections)
        for connection in [*self.connections]:
            connection.fail()
        return waiting

    def _source(self, listener: socket.socket) -> Stamps:
        return self._unstamped if listener.family == socket.AF_UNIX else self.stamps

    def _watch(self, listener: socket.socket) -> None:
        self._pump.reactor.watch(listener.fileno(), READ, lambda _: self._accept(listener))

    def _unwatch(self, listener: socket.socket) -> None:
        self._pump.reactor.deadlines.cancel(self._resting.pop(listener, None))
        self._pump.reactor.unwatch(listener.fileno())
        self._listeners.pop(listener).unwatch(listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED):
            if not self._accept_one(listener):
                return

    def _accept_one(self, listener: socket.socket) -> bool:
        """Accept a client, if one has connected; return whether there may be others."""
        try:
            sock, address = listener.accept()
        except ConnectionAbortedError:
            return True
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            if error.errno in _SCARCE:
                self._rest(listener, error)
            return False
        most = self.spec.max_connections
        if len(self.connections) >= most:
            sock.close()
            self.journal.note("refused", f"more than {most} connections (max_connections)")
            return True
        sock.setblocking(False)
        try:
            self._begin(sock, address)
        except OSError:
            sock.close()  # The client has reset the connection.
        return True

    def _begin(self, sock: socket.socket, address: object) -> None:
        stamps, context = self._source(sock), None
        if sock.family == socket.AF_UNIX:
            shown = "unix"
        else:
            assert isinstance(address, tuple)
            shown = str(address[0])
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            context = self.spec.tls.context if self.spec.tls else None
        connection = Connection(
            *(self._shared, self.spec, sock, shown),
            stamps=stamps,
            context=context,
            on_end=self._ended,
        )
        self.connections.add(connection)
        self._pump.flows[connection.lane] = connection
        self.journal.counts["accepted"] += 1

    def _ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._pump.flows.pop(connection.lane, None)

    def _rest(self, listener: socket.socket, error: OSError) -> None:
        """Accept no client for a moment."""
        self.journal.note("refused", f"cannot accept connections: {error.strerror}")
        self._pump.reactor.unwatch(listener.fileno())
        self._resting[listener] = self._pump.reactor.after(
            _SCARCE_NS, lambda: self._watch(listener)
        )
