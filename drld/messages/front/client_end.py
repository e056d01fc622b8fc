"""The end of a connection at the client: its socket, its stream, and its segments' times."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial

from drld.messages.frame import Frame, Returns
from drld.messages.front.arrival import Stamps
from drld.messages.front.client_stream import ClientStream
from drld.messages.front.link import READ_BYTES, Link
from drld.messages.front.reactor import Handler, Reactor
from drld.messages.proxy_header import Endpoints
from drld.model import NS_PER_S

END_NS = 5 * NS_PER_S
"""Time for a client to read what is left, and to close, when drld ends the connection."""


class ClientEnd:
    """The client of a connection."""

    __slots__ = (
        *("_addresses", "_receive"),
        *("answered", "ended", "left", "link", "segments", "stream"),
    )

    def __init__(
        self,
        sock: socket.socket,
        stream: ClientStream,
        stamps: Stamps,
        *,
        reactor: Reactor,
        handler: Handler,
        closed: Callable[[], None],
    ) -> None:
        """Begin with a client that has been accepted.

        Args:
            sock: the client's socket; it never blocks.
            stream: makes frames of the client's bytes.
            stamps: the source of arrival times.
            reactor: watches the socket.
            handler: gets the events of the socket.
            closed: is called when the socket has been closed.

        Raises:
            OSError: the client has reset the connection.
        """
        tcp = sock.family != socket.AF_UNIX
        self._addresses = Endpoints(sock.getpeername()[:2], sock.getsockname()[:2]) if tcp else None
        self.stream = stream
        self.segments = stamps.of(sock)
        """The arrival times of the client's bytes."""
        self.ended = False
        """Whether drld reads no more of the client."""
        self.left = False
        """Whether the client has ended its side itself."""
        self.answered = 0
        """Bytes of drld's own answers that the client has not taken, at most."""
        self._receive = partial(stamps.receive, sock, self.segments)
        self.link = Link(reactor, handler)

        def on_close() -> None:
            stamps.close(sock)
            closed()

        self.link.on_close = on_close
        self.link.begin(sock)
        self.link.read(True)

    @property
    def endpoints(self) -> Endpoints | None:
        """The addresses of the client and of the server that it connected to.

        A header of the PROXY protocol says them. Otherwise they are those of the socket. None: the
        client came by a unix socket.
        """
        return self.stream.endpoints or self._addresses

    def receive(self, most: int = READ_BYTES) -> Iterator[Frame] | None:
        """Read at most so many bytes, and return the frames that they complete.

        Returns None if nothing has come now; `left` says whether the client has ended its side.
        """
        data = self.link.receive(self._receive, most)
        if data:
            return self.stream.feed(data)
        if data is not None:
            self.ended = self.left = True
        return None

    def forget(self) -> None:
        """Free the memory of what is not complete: drld reads no more of the client."""
        self.stream.forget()
        self.segments.forget()

    def send(self, data: bytes) -> bool:
        """Send bytes to the client when it can take them; return whether there is anything new."""
        # A client of TLS that has ended its side takes no more, though TLS 1.3 would permit it.
        if not data or not self.link.open or self.stream.ended:
            return False
        self.link.send(self.stream.encode(data))
        return True

    def answer(self, data: bytes, returns: Returns) -> None:
        """Answer the client in the broker's place, between the broker's frames."""
        self.answered += len(data)
        self.send(returns.insert(data))

    def flush(self) -> None:
        """Send what has collected: at the end of a turn."""
        link = self.link
        if (tls := self.stream.tls) is not None and (output := tls.output()):
            link.send(output)
        if link.chunks and not link.blocked:
            link.flush()

    def end(self) -> None:
        """Send the rest, and close the connection."""
        if self.link.sock is not None and not self.link.ending:
            self.link.send(self.stream.last_words())
            self.link.end(END_NS)
