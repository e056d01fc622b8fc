"""The server of requests: HTTP and gRPC on TCP addresses and unix sockets, under bounds.

Its clients may be strangers. So besides the bounds of a connection (drld.control.connection) and of
a question (drld.requests.question):

- They have places of their own, and take none from clients of the control socket. One host has
  half of them at most.
- With TLS, connections are accepted at a pace, and each step of a handshake waits for its turn.
- A head may be larger than elsewhere, as a proxy may pass on the cookies of its client.
- When the daemon stops, no connection is accepted any more, idle ones end, and every request that
  has begun is answered first, within the time that a request has. A client that does not take its
  answer delays the stop by `TAKE_S` at most: other clients get no answers until the daemon is back.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from ssl import SSLContext

import trio
from starlette.types import ASGIApp

from drld.client.protocol.greeting import MAGIC
from drld.control.connection import REQUEST_S
from drld.control.credentials import Credentials
from drld.control.server import Connections, Conversation, claimed
from drld.control.tcp import bound, over_tls
from drld.control.turns import Turns
from drld.log_event import event
from drld.requests.caller import Client, caller_of, certificate_name
from drld.requests.datapath import RequestDatapath
from drld.requests.front.app import Clock, Trusted, make_app
from drld.requests.front.batch import BatchFront, Passes
from drld.requests.front.grpc_connection import GrpcConnection, grpc_handlers
from drld.requests.front.protocols import Begin, Negotiated
from drld.requests.grpc.call import Handlers
from drld.requests.grpc.exchange import PREFACE
from drld.requests.spec import Address
from drld.spec import format_endpoint

log = logging.getLogger("drld.requests")

MAX_CONNECTIONS = 512
"""Half of the descriptors that a process commonly may have."""
MAX_HEAD_BYTES = 32_768
"""The bound that nginx has for its own clients by default."""
HANDSHAKE_S = 0.005
"""The time between accepted connections with TLS. A handshake with RSA of 2048 bits takes about 1
ms, so strangers have a fifth of a core. Clients keep their connections."""
SETTLE_S = 0.05
"""The time in which questions from before the stop are read: some passes of the event loop."""
TAKE_S = 1.0
"""The time in which clients take the last answers, s: most fit the buffers of a socket."""
SOCKET_MODE = 0o666
"""The mode of a unix socket: every user who may enter its directory may ask, as on a TCP address of
loopback."""
_BACKLOG = 512


class RequestConnections(Connections):
    """The connections of all addresses."""

    kind, a_kind = "request", "a request"
    max_head_bytes = MAX_HEAD_BYTES

    def __init__(
        self,
        app: ASGIApp,
        turns: Turns,
        batch: BatchFront,
        grpc: Handlers,
        tls: Callable[[], SSLContext | None] = lambda: None,
    ) -> None:
        """Serve clients of requests over HTTP, gRPC and the batch protocol.

        Args:
            app: answers HTTP.
            turns: shared with the daemon's other servers.
            batch: answers batches.
            grpc: answers calls of gRPC.
            tls: makes the context of a new connection over TCP; None: no TLS.
        """
        super().__init__(app, turns)
        self._batch = batch
        self._tls = tls
        self._grpc = grpc
        self._pace = trio.Lock()

    def peer(self, sock: trio.socket.SocketType, address: object) -> Client:
        """Return the client's address, or the user of this host."""
        if sock.family == socket.AF_UNIX:
            return Client(f"uid {Credentials.of(sock).uid}")
        assert isinstance(address, tuple)
        return Client(str(address[0]))

    def places(self, peer: object) -> int:
        """Return the places of connections: all clients are alike."""
        return self.shared(MAX_CONNECTIONS, peer)

    def group(self, peer: object) -> str:
        """Return the client's host: an address, the /64 of an address, or a user."""
        assert isinstance(peer, Client)
        return caller_of(Client(peer.host), (), ())

    def stream(self, sock: trio.socket.SocketType) -> trio.abc.Stream:
        """See `over_tls`; TCP without a certificate, and unix sockets, are plain."""
        context = self._tls() if sock.family != socket.AF_UNIX else None
        plain = trio.SocketStream(sock)
        if context is None:
            return plain
        # The first that the client offers, too: HTTP/2 is that of gRPC alone here, and clients such
        # as curl offer both.
        context.set_alpn_protocols(["http/1.1", "h2"])
        return over_tls(plain, context, self._turns)

    async def pause(self) -> None:
        """Keep the pace of handshakes, on all addresses together."""
        if self._tls() is not None:
            async with self._pace:
                await trio.sleep(HANDSHAKE_S)

    @property
    def protocols(self) -> Mapping[bytes, Begin]:
        """The protocols besides HTTP/1.1, by their first bytes; each has a line here."""
        return {
            MAGIC: self._batch.connection,
            PREFACE: partial(GrpcConnection, self._grpc, self._turns),
        }

    def conversation(self, stream: trio.abc.Stream, peer: object) -> Conversation:
        """Return the connection of a client in any protocol."""
        assert isinstance(peer, Client)
        who = partial(_shown, stream, peer)
        return Negotiated(stream, who, super().conversation, self.protocols)


def _shown(stream: trio.abc.Stream, client: Client) -> Client:
    """Return a client that has begun to speak, with the name of its certificate if it has shown
    one."""
    if not isinstance(stream, trio.SSLStream):
        return client
    certificate = stream.getpeercert()
    return client._replace(certificate=certificate_name(certificate) if certificate else None)


async def serve_requests(
    datapath: RequestDatapath,
    listen: Iterable[Address],
    turns: Turns,
    *,
    clock: Clock,
    stopping: trio.Event,
    trusted: Trusted = tuple,
    tls: Callable[[], SSLContext | None] = lambda: None,
    task_status: trio.TaskStatus[list[Address]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer on these addresses until `stopping` is set and every open request is answered.

    Args:
        datapath: decides.
        listen: addresses and ports, and paths of unix sockets.
        turns: shared with the daemon's other servers.
        clock: monotonic time, ns.
        stopping: set when the daemon stops.
        trusted: the networks of trusted proxies.
        tls: makes the context of a new connection over TCP; None is no TLS.
        task_status: started with the addresses and their ports, when all are bound.

    Raises:
        ConfigError: an address cannot be bound.
    """
    application = make_app(datapath, clock, trusted)
    batch, grpc = BatchFront(datapath, clock, turns), grpc_handlers(datapath, clock, trusted)
    connections = RequestConnections(application, turns, batch, grpc, tls)
    with ExitStack() as stack:
        passes = Passes(batch)
        trio.lowlevel.add_instrument(passes)
        stack.callback(trio.lowlevel.remove_instrument, passes)
        listeners = [stack.enter_context(_listener(address)) for address in listen]
        addresses: list[Address] = [
            it if isinstance(it := sock.getsockname(), str) else it[:2] for sock in listeners
        ]
        async with trio.open_nursery() as serving:
            for listener in listeners:
                await serving.start(connections.accept, trio.socket.from_stdlib_socket(listener))
            for address in addresses:
                where = address if isinstance(address, str) else format_endpoint(*address)
                log.info(
                    "requests: listening on %s",
                    where,
                    extra=event("requests.listening", address=where),
                )
            task_status.started(addresses)
            await stopping.wait()
            connections.refuse()
            await trio.sleep(SETTLE_S)
            connections.drain()
            serving.cancel_scope.deadline = trio.current_time() + REQUEST_S + TAKE_S


def _listener(address: Address) -> AbstractContextManager[socket.socket]:
    """Return a socket that listens on this address, as a context that ends with it."""
    if isinstance(address, str):
        return claimed(Path(address), key="requests.listen", mode=SOCKET_MODE)
    return bound(*address, key="requests.listen", backlog=_BACKLOG)
