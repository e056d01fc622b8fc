"""One end of a connection: a socket that never blocks, and the bytes that wait to be sent on it.

A socket is in the reactor only while it is to be read, or has bytes to send. So a socket that
drld does not read, and that its peer has reset, causes no events.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from functools import partial

from drld.messages.front.deadlines import Deadline
from drld.messages.front.reactor import READ, WRITE, Handler, OwnReactor
from drld.messages.spec import Address

READ_BYTES = 32_768
"""The most bytes of one read."""

_RETRY_NS = 10_000_000
"""The time until the next try to connect to a unix socket whose backlog is full."""

_buffer = bytearray(READ_BYTES)
_view = memoryview(_buffer)


class Link:
    """A socket and its output; the first output may come before the socket."""

    __slots__ = (
        "_after_connecting",
        "_deadline",
        "_handler",
        "_mask",
        "_reactor",
        "answered",
        "blocked",
        "broken",
        "chunks",
        "ending",
        "on_close",
        "queued",
        "reads",
        "sock",
    )

    def __init__(self, reactor: OwnReactor, handler: Handler) -> None:
        """Begin without a socket; `handler` gets the events of the socket."""
        self._reactor = reactor
        self._handler = handler
        self._after_connecting = handler
        self._mask = 0
        self._deadline: Deadline | None = None
        self.sock: socket.socket | None = None
        self.chunks: list[bytes] = []
        """Output that waits for the next `flush`."""
        self.queued = 0
        """The bytes of this output."""
        self.blocked = True
        """Whether `flush` has to wait until the socket takes more."""
        self.broken = False
        """Whether sending has failed; further output is thrown away."""
        self.reads = False
        """Whether the socket is read."""
        self.ending = False
        """Whether `end` has been called."""
        self.answered = False
        """Whether the peer has closed its side after `end`, and not reset the connection."""
        self.on_close: Callable[[], None] | None = None
        """A function that is called when the socket is closed."""

    def begin(self, sock: socket.socket) -> None:
        """Take a connected socket."""
        self.sock = sock
        self.blocked = False
        self._update()

    def connect(self, address: Address, done: Callable[[str | None], None]) -> None:
        """Connect to a TCP address, or the path of a unix socket.

        Args:
            address: the address to connect to.
            done: gets the reason if it is not possible, or None. It may be called at once.
        """
        try:
            sock = _socket_for(address)
        except OSError as error:
            done(error.strerror or str(error))
            return
        refusal = sock.connect_ex(address)
        if refusal == errno.EAGAIN:
            sock.close()
            self._cancel()
            retry = partial(self.connect, address, done)
            self._deadline = self._reactor.after(_RETRY_NS, retry)
        elif refusal == errno.EINPROGRESS:
            handler, self._handler = self._handler, partial(self._connecting, done)
            self._after_connecting = handler
            self.sock = sock
            self._update()
        elif refusal:
            sock.close()
            done(os.strerror(refusal))
        else:
            self.begin(sock)
            done(None)

    def _connecting(
        self,
        done: Callable[[str | None], None],
        events: int,  # noqa: ARG002 -- SO_ERROR tells more
    ) -> None:
        assert self.sock is not None
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._reactor.unwatch(self.sock.fileno())
        self._mask = 0
        self._handler = self._after_connecting
        self.blocked = False
        if not error:
            self._update()
        done(os.strerror(error) if error else None)

    @property
    def open(self) -> bool:
        """Whether the peer can get output."""
        return self.sock is not None and not (self.ending or self.broken)

    def send(self, data: bytes) -> None:
        """Add bytes to the output, which `flush` sends."""
        self.chunks.append(data)
        self.queued += len(data)

    def read(self, wanted: bool) -> None:
        """Begin or stop to wait until the socket can be read."""
        if wanted is not self.reads and not self.ending:
            self.reads = wanted
            self._update()

    def receive(
        self, receive: Callable[[memoryview], int] | None = None, most: int = READ_BYTES
    ) -> bytes | None:
        """Read at most so many bytes.

        `receive` reads into a buffer in the place of the socket's `recv_into`.

        Returns what has come; empty: nothing will come any more; None: nothing has come now.
        """
        assert self.sock is not None
        view = _view if most >= READ_BYTES else _view[:most]
        try:
            size = self.sock.recv_into(view) if receive is None else receive(view)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            self.broken = True
            return b""
        return bytes(_view[:size])

    def flush(self) -> None:
        """Send as much output as the socket takes."""
        chunks = self.chunks
        if self.broken or self.sock is None:
            if self.broken:
                chunks.clear()
                self.queued = 0
            return
        if chunks:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            try:
                sent = self.sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                # drld can still read the bytes that the peer has sent before.
                self.broken = True
                sent = len(data)
            if sent < len(data):
                chunks.append(data[sent:] if sent else data)
                self.queued = len(data) - sent
                if not self.blocked:
                    self.blocked = True
                    self._update()
                return
            self.queued = 0
        if self.blocked:
            self.blocked = False
            self._update()

    def shutdown(self) -> None:
        """Tell the peer that no more output follows; all of it has been sent."""
        assert self.sock is not None
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.broken = True

    def end(self, within_ns: int) -> None:
        """Send the output, tell the peer that it was all, and close when the peer has closed.

        The socket is closed after this time at the latest. Until then, input is thrown away: a
        socket that is closed with unread input resets the connection, and the peer may lose output
        that it has not read yet.
        """
        if self.sock is None:
            return
        self._handler = self._ending
        self.ending = True
        if self._mask:
            self._reactor.unwatch(self.sock.fileno())
            self._mask = 0
        self._cancel()
        self._deadline = self._reactor.after(within_ns, self.close)
        self.reads = True
        self._finish()
        self._update()

    def close(self) -> None:
        """Close the socket, if there is one."""
        self._cancel()
        self.chunks.clear()
        self.queued = 0
        self.reads = False
        sock, self.sock = self.sock, None
        if sock is None:
            return
        if self._mask:
            self._reactor.unwatch(sock.fileno())
            self._mask = 0
        if self.on_close is not None:
            self.on_close()
        sock.close()

    def _ending(self, events: int) -> None:
        if events & WRITE:
            self._finish()
        if self.broken:
            self.close()
        elif self.receive() == b"":
            self.answered = not self.broken
            self.close()

    def _finish(self) -> None:
        self.flush()
        if not self.blocked:
            self.shutdown()

    def _cancel(self) -> None:
        self._reactor.cancel(self._deadline)

    def _update(self) -> None:
        """Make the reactor watch for the events that are wanted now."""
        if self.sock is None:
            return
        mask = READ * self.reads | WRITE * self.blocked
        if mask == self._mask:
            return
        fd = self.sock.fileno()
        if not self._mask:
            self._reactor.watch(fd, mask, self._handler)
        elif not mask:
            self._reactor.unwatch(fd)
        else:
            self._reactor.change(fd, mask)
        self._mask = mask


def _socket_for(address: Address) -> socket.socket:
    """Make a socket that can be connected to an address."""
    if isinstance(address, str):
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
