"""The end of a connection at the client: its socket, its stream, and its segments' times."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Callable, Iterator
from fcntl import ioctl
from functools import partial
from termios import FIONREAD

from drld.messages.frame import Frame, Returns
from drld.messages.front.arrival import Stamps
from drld.messages.front.client_stream import ClientStream
from drld.messages.front.link import READ_BYTES, Link
from drld.messages.front.reactor import Handler, OwnReactor
from drld.messages.proxy_header import Endpoints
from drld.model import NS_PER_S

MOST_UNSENT = 4 << 20
"""The bytes that a host may hold of a client that it cannot send yet: the default of Linux
(net.ipv4.tcp_wmem)."""
END_NS = 5 * NS_PER_S
"""Time for a client to read what is left, and to close, when drld ends the connection."""


class ClientEnd:
    """The client of a connection."""

    __slots__ = (
        *("_addresses", "_most", "_receive"),
        *("answered", "ended", "left", "link", "segments", "stream"),
    )

    def __init__(
        self,
        sock: socket.socket,
        stream: ClientStream,
        stamps: Stamps,
        *,
        reactor: OwnReactor,
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
        self._most: int | None = None
        """The bytes of the client that drld still reads; None: it reads all."""
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
        left = self._most
        data = self.link.receive(self._receive, most if left is None else min(most, left))
        if data:
            if left is not None:
                self._most = left - len(data)
                self.ended = self._most == 0
            return self.stream.feed(data)
        if data is not None:
            self.ended = self.left = True
        return None

    def read_last(self, *, paused: bool) -> bool:
        """Read what has arrived until now, and no more.

        If drld has not read the client for a while (`paused`), TCP holds back what the client has
        sent. Then drld also reads as much as its host may hold.

        Returns whether this ends the connection: no earlier call has done so, nor the client.
        """
        sock, before = self.link.sock, self._most
        if self.ended or sock is None:
            return False
        arrived = array("i", [0])
        ioctl(sock, FIONREAD, arrived)
        most = arrived[0] + MOST_UNSENT * paused
        self._most = most if before is None else min(most, before)
        if not self._most:
            self.ended = True
            self.link.read(False)
        return before is None

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
