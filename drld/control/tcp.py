"""The server for other hosts: HTTP on the addresses of `[http]`, over TLS if it has a certificate.

It only reads (`make_public_app`). Its clients may be strangers, so besides the bounds of a
connection (drld.control.connection):

- They have places of their own, and take none from clients of the control socket. One address has
  half of them at most, so that a stranger alone does not keep Prometheus out.
- A connection is accepted every `ACCEPT_PAUSE_S`. So handshakes, the dearest that a stranger can
  ask for, take a bounded part of a core: those with RSA of 2048 bits, about 1 ms each, 5 %.
- Each step of a handshake waits for its turn, so that a pass of the event loop has one at most.
- On loopback addresses a request must name one (drld.control.rebinding).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from ipaddress import ip_address
from ssl import SSLContext
from typing import NamedTuple

import trio
from starlette.types import ASGIApp

from drld.control.app import PUBLIC, make_public_app
from drld.control.backend import Backend
from drld.control.page import page_routes
from drld.control.rebinding import guarded
from drld.control.server import Connections
from drld.control.turns import Turns
from drld.errors import ConfigError
from drld.log_event import event
from drld.spec import format_endpoint

log = logging.getLogger("drld.control")

MAX_HTTP_CONNECTIONS = 64
ACCEPT_PAUSE_S = 0.02
_BACKLOG = 64
_RECEIVED_BYTES = 16_384


class HttpPeer(NamedTuple):
    """A client of an address."""

    host: str
    port: int
    loopback: bool
    """Whether the client asked a loopback address."""

    def __str__(self) -> str:
        return format_endpoint(self.host, self.port)


async def serve_http(
    backend: Backend,
    listen: Iterable[tuple[str, int]],
    tls: Callable[[], SSLContext | None],
    turns: Turns,
    *,
    page: bool = False,
    task_status: trio.TaskStatus[list[tuple[str, int]]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve figures on these addresses until cancelled.

    Args:
        backend: the object that answers.
        listen: addresses and ports.
        tls: makes the context of a new connection; None is no TLS.
        turns: the turns that all servers of the daemon share.
        page: whether to show the page, too.
        task_status: started when all addresses are bound, with these and their ports.

    Raises:
        ConfigError: an address cannot be bound.
    """
    with ExitStack() as stack:
        listeners = [stack.enter_context(bound(*endpoint)) for endpoint in listen]
        app = make_public_app(backend, turns, (*PUBLIC, page_routes) if page else PUBLIC)
        connections = HttpConnections(guarded(app), turns, tls)
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                await nursery.start(connections.accept_from, listener)
            addresses = [it.getsockname()[:2] for it in listeners]
            for address in addresses:
                endpoint = format_endpoint(*address)
                log.info(
                    "figures for other hosts: listening on %s",
                    endpoint,
                    extra=event("http.listening", address=endpoint),
                )
            task_status.started(addresses)


class HttpConnections(Connections):
    """The clients of all addresses."""

    kind, a_kind = "http", "an HTTP"

    def __init__(
        self, app: ASGIApp, turns: Turns, tls: Callable[[], SSLContext | None] = lambda: None
    ) -> None:
        """See `serve_http`."""
        super().__init__(app, turns)
        self._tls = tls
        self._pace = trio.Lock()

    async def accept_from(
        self,
        listener: socket.socket,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve the clients of one address, until cancelled."""
        await self.accept(trio.socket.from_stdlib_socket(listener), task_status)

    def peer(self, sock: trio.socket.SocketType, address: object) -> HttpPeer:
        """The client, by its address."""
        assert isinstance(address, tuple)
        host, port, *_ = address
        return HttpPeer(host, port, ip_address(sock.getsockname()[0]).is_loopback)

    def places(self, peer: object) -> int:
        """All clients are alike."""
        return self.shared(MAX_HTTP_CONNECTIONS, peer)

    def group(self, peer: object) -> str:
        """The client's address."""
        assert isinstance(peer, HttpPeer)
        return peer.host

    def stream(self, sock: trio.socket.SocketType) -> trio.abc.Stream:
        """See `over_tls`; without a certificate, TCP."""
        context = self._tls()
        tcp = trio.SocketStream(sock)
        return tcp if context is None else over_tls(tcp, context, self._turns)

    async def pause(self) -> None:
        """Wait until the next client may be accepted; all addresses share the pace."""
        async with self._pace:
            await trio.sleep(ACCEPT_PAUSE_S)


class TakingTurns(trio.abc.Stream):
    """A stream whose data waits for its turn, as TLS works on it at once."""

    def __init__(self, stream: trio.abc.Stream, turns: Turns) -> None:
        self._stream = stream
        self._turns = turns
        self._waiting: bytes | bytearray | None = None

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive; what came is kept if the caller is cancelled before its turn."""
        if self._waiting is None:
            self._waiting = await self._stream.receive_some(max_bytes or _RECEIVED_BYTES)
        await self._turns.wait()
        data, self._waiting = self._waiting, None
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send data; TLS has worked on it already."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until sending might not block."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the stream below."""
        await self._stream.aclose()


def over_tls(
    stream: trio.abc.Stream, context: SSLContext, turns: Turns
) -> trio.SSLStream[trio.abc.Stream]:
    """A stream that shakes hands when it is read from first; each step waits for its turn."""
    # HTTP says where an answer ends: clients often leave without a word of TLS.
    return trio.SSLStream(
        TakingTurns(stream, turns), context, server_side=True, https_compatible=True
    )


def bound(
    host: str,
    port: int,
    *,
    key: str = "http.listen",
    backlog: int = _BACKLOG,
    shares: bool = False,
) -> socket.socket:
    """Make a socket that listens on this address alone.

    Args:
        host: the address.
        port: the port.
        key: names the address in errors.
        backlog: clients that may wait in the kernel.
        shares: whether sockets of this user that share their port may listen there, too.

    Raises:
        ConfigError: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shares)
        if family == socket.AF_INET6:
            # "[::]" leaves IPv4 to "0.0.0.0".
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        endpoint = format_endpoint(host, port)
        raise ConfigError([f"{key}: cannot bind {endpoint}: {error.strerror}"]) from error
    return sock
