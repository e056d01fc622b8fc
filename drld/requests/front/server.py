"""The server of requests: HTTP on TCP addresses and unix sockets, under bounds.

Its clients may be strangers. So besides the bounds of a connection (drld.control.connection) and of
a question (drld.requests.question):

- They have places of their own, and take none from clients of the control socket.
- A head may be larger than elsewhere, as a proxy may pass on the cookies of its client.
- When the daemon stops, no connection is accepted any more, idle ones end, and every request that
  has begun is answered first, within the time that a request has.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import trio

from drld.control.connection import REQUEST_S, WRITE_S
from drld.control.credentials import Credentials
from drld.control.server import Connections, Conversation, claimed
from drld.control.tcp import bound
from drld.control.turns import Turns
from drld.log_event import event
from drld.requests.datapath import RequestDatapath
from drld.requests.front.app import Clock, Trusted, make_app
from drld.requests.front.protocols import Begin, Negotiated
from drld.requests.spec import Address
from drld.spec import format_endpoint

log = logging.getLogger("drld.requests")

MAX_CONNECTIONS = 512
"""Half of the descriptors that a process commonly may have."""
MAX_HEAD_BYTES = 32_768
"""What nginx takes of its own clients by default."""
SETTLE_S = 0.05
"""Time in which what clients sent before the stop is read: some passes of the event loop."""
SOCKET_MODE = 0o666
"""Of a unix socket: who may enter its directory may ask, as on a TCP address of loopback."""
_BACKLOG = 512


class RequestConnections(Connections):
    """The clients of all addresses."""

    kind, a_kind = "request", "a request"
    max_head_bytes = MAX_HEAD_BYTES

    def peer(self, sock: trio.socket.SocketType, address: object) -> str:
        """Who asks: the address of a host, or a user of this host."""
        if sock.family == socket.AF_UNIX:
            return f"uid {Credentials.of(sock).uid}"
        assert isinstance(address, tuple)
        return str(address[0])

    def places(self, _: object) -> int:
        """All clients are alike."""
        return MAX_CONNECTIONS

    def conversation(self, stream: trio.abc.Stream, peer: object) -> Conversation:
        """A client in any protocol; each has a line here."""
        protocols: Mapping[bytes, Begin] = {}
        return Negotiated(stream, peer, super().conversation, protocols)


async def serve_requests(
    datapath: RequestDatapath,
    listen: Iterable[Address],
    turns: Turns,
    *,
    clock: Clock,
    stopping: trio.Event,
    trusted: Trusted = tuple,
    task_status: trio.TaskStatus[list[Address]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer on these addresses until `stopping` is set and every open request is answered.

    Args:
        datapath: decides.
        listen: addresses and ports, and paths of unix sockets.
        turns: shared with the daemon's other servers.
        clock: monotonic time, ns.
        stopping: set when the daemon stops.
        trusted: the proxies that say who calls.
        task_status: started when all addresses are bound, with these and their ports.

    Raises:
        ConfigError: an address cannot be bound.
    """
    connections = RequestConnections(make_app(datapath, clock, trusted), turns)
    with ExitStack() as stack:
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
            serving.cancel_scope.deadline = trio.current_time() + REQUEST_S + WRITE_S


def _listener(address: Address) -> AbstractContextManager[socket.socket]:
    """A socket that listens on this address, as a context that ends with it."""
    if isinstance(address, str):
        return claimed(Path(address), key="requests.listen", mode=SOCKET_MODE)
    return bound(*address, key="requests.listen", backlog=_BACKLOG)
