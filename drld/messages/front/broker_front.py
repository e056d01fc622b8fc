"""The front of one broker: the sockets on which it listens, its connections, bounds and counts.

Memory. `hold` bounds what waits for a broker: messages that wait for tokens, and bytes that a
socket does not take. Each connection may have as much as is free of it: the dynamic threshold of
shared-memory switches (Choudhury and Hahne, 1998). A single connection so gets half of it at most,
and n that all want more than they get, 1/(n+1) each. A part stays free, so that a client whose
messages do not wait is always read.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from ssl import SSLContext

from drld.log_event import event
from drld.messages.front.arrival import Stamps
from drld.messages.front.coarse_stamps import ReadStamps
from drld.messages.front.connection import Connection
from drld.messages.front.deadlines import Deadline
from drld.messages.front.pump import Pump
from drld.messages.front.reactor import READ
from drld.messages.protocols import PROTOCOLS
from drld.messages.spec import BrokerSpec

log = logging.getLogger("drld.messages")

_ACCEPTED = 16
"""Connections that are accepted from a socket in a turn."""
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SCARCE_NS = 100_000_000
"""Until the next try to accept when the host lacks descriptors or memory."""


class BrokerFront:
    """Where the clients of one broker connect."""

    def __init__(
        self,
        spec: BrokerSpec,
        pump: Pump,
        stamps: Stamps,
        context: Callable[[], SSLContext | None],
    ) -> None:
        """Nothing listens yet.

        Args:
            spec: the broker.
            pump: moves the frames of its connections.
            stamps: the source of arrival times for TCP; those of unix sockets are of reading.
            context: for new connections over TCP, as the certificate's files are now; None: no TLS.
        """
        self.spec = spec
        self.context = context
        self.pump = pump
        self.protocol = PROTOCOLS[spec.protocol]
        self.stamps = stamps
        self.unstamped = ReadStamps()
        self.held = 0
        """Bytes that wait here."""
        self.counts: Counter[str] = Counter()
        """Of connections by what became of them, and of messages that could not be delivered."""
        self.connections: set[Connection] = set()
        self._newest: dict[str, Connection] = {}
        """The connection of each client, by its identifier."""
        self._listeners: dict[int, socket.socket] = {}

    @property
    def part(self) -> int:
        """Bytes that may wait of one connection."""
        return max(self.spec.hold - self.held, 0)

    def listen(self, listener: socket.socket) -> None:
        """Take the clients of a socket that listens and never blocks.

        Raises:
            DatapathError: the kernel refuses the source of arrival times.
        """
        if listener.family != socket.AF_UNIX:
            self.stamps.watch(listener)
        self._listeners[listener.fileno()] = listener
        self.pump.reactor.watch(listener.fileno(), READ, lambda _: self._accept(listener))

    def refuse(self) -> None:
        """Accept no more clients; the sockets stay open, with those that have connected."""
        for fd, listener in self._listeners.items():
            self.pump.reactor.unwatch(fd)
            if listener.family != socket.AF_UNIX:
                self.stamps.unwatch(listener)
        self._listeners.clear()

    def after(self, delay_ns: int, act: Callable[[], None]) -> Deadline:
        """Have something done after this time."""
        reactor = self.pump.reactor
        return reactor.deadlines.add(reactor.clock() + delay_ns, act)

    def cancel(self, deadline: Deadline | None) -> None:
        """Call it off, if it is to be done."""
        self.pump.reactor.deadlines.cancel(deadline)

    def note(self, reason: str, claim: str) -> None:
        """Count why a connection ends, and log it."""
        self.counts[reason] += 1
        name = self.spec.name
        fields = event(f"broker.{reason}", name, broker=name, reason=claim)
        log.warning("broker %s: %s", name, claim, extra=fields)

    def join(self, connection: Connection) -> Connection | None:
        """Take in that a client has said who it is; return its older connection if its frames
        wait."""
        client = connection.lane.client
        if client is None or not client.id or not self.protocol.one_per_client:
            return None
        older = self._newest.get(client.id)
        self._newest[client.id] = connection
        return older if older is not None and older.waiting else None

    def forget(self, connection: Connection) -> None:
        """Take in that a connection has ended."""
        self.connections.discard(connection)
        self.pump.flows.pop(connection.lane, None)
        client = connection.lane.client
        if client is not None and self._newest.get(client.id) is connection:
            del self._newest[client.id]

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _SCARCE:
                    self._rest(listener, error)
                return
            if len(self.connections) >= self.spec.max_connections:
                sock.close()
                self.note("refused", f"more than {self.spec.max_connections} connections")
                continue
            sock.setblocking(False)
            try:
                self._begin(sock, address)
            except OSError:
                sock.close()  # The client has reset the connection.

    def _begin(self, sock: socket.socket, address: object) -> None:
        if sock.family == socket.AF_UNIX:
            shown = "unix"
        else:
            assert isinstance(address, tuple)
            shown = str(address[0])
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection = Connection(self, sock, shown)
        self.connections.add(connection)
        self.pump.flows[connection.lane] = connection
        self.counts["accepted"] += 1

    def _rest(self, listener: socket.socket, error: OSError) -> None:
        """Accept no client for a moment."""
        self.note("refused", f"cannot accept connections: {error.strerror}")
        fd, reactor = listener.fileno(), self.pump.reactor
        reactor.unwatch(fd)

        def again() -> None:
            if fd in self._listeners:
                reactor.watch(fd, READ, lambda _: self._accept(listener))

        self.after(_SCARCE_NS, again)
