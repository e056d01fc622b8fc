"""A client of HTTP/1.1 for the registry: requests with a body, and answers in pieces.

It uses h11, as the control API does. A client library would cost the daemon 5 MB. It would also
leave an asynchronous generator open after each answer that is not read to its end, such as a watch.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import h11
import trio

_CONNECT_TIMEOUT_S = 3.0
_PIECE = 1 << 16
_KEEP_ALIVE = (
    # A quiet watch looks like a lost connection; these options find a lost one within 20 s.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 8),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 4),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)

_ALERTS = ("alert bad certificate", "alert certificate", "alert unknown ca", "alert unsupported")
"""Servers' alerts about a client's certificate."""


class HttpError(Exception):
    """The server cannot be reached, or its answer is not HTTP."""


class _Audible(trio.abc.Stream):
    """A TCP stream that can still be read after the server has reset it.

    A server that refuses our certificate sends an alert and resets the connection. The system
    reports the reset to the next send, and TLS reads nothing after an error. So here a send does
    not fail.
    """

    def __init__(self, tcp: trio.SocketStream) -> None:
        self._tcp = tcp
        self._unsent: trio.BrokenResourceError | None = None

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._tcp.send_all(data)
        except trio.BrokenResourceError as error:
            self._unsent = error

    async def wait_send_all_might_not_block(self) -> None:
        await self._tcp.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._tcp.receive_some(max_bytes)
        if not data and self._unsent is not None:
            raise self._unsent
        return data

    async def aclose(self) -> None:
        await self._tcp.aclose()


class Connection:
    """A connection to a server, for one request at a time; an asynchronous context manager."""

    def __init__(self, stream: trio.abc.Stream, host: str) -> None:
        """See `connect`."""
        self._stream = stream
        self._host = host
        self._http = h11.Connection(h11.CLIENT)

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self._stream)

    @property
    def idle(self) -> bool:
        """Whether another request may be sent."""
        return self._http.our_state is h11.IDLE

    async def post(self, path: str, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> int:
        """Send a request; return the status of the answer.

        Raises:
            HttpError: the connection failed, or the answer is not HTTP.
        """
        head = h11.Request(
            method="POST",
            target=path,
            headers=[
                ("host", self._host),
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                *headers,
            ],
        )
        parts = (head, h11.Data(body), h11.EndOfMessage())
        with _failing():
            await self._stream.send_all(b"".join(self._http.send(part) or b"" for part in parts))
            while True:
                event = await self._next()
                if isinstance(event, h11.Response):
                    return event.status_code
                if not isinstance(event, h11.InformationalResponse):
                    raise HttpError("the connection was closed")

    async def piece(self) -> bytes | None:
        """The next part of the answer's body; None: the body has ended.

        Raises:
            HttpError: the connection failed, or the answer is not HTTP.
        """
        with _failing():
            event = await self._next()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise HttpError("the connection was closed")
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        return None

    async def _next(self) -> object:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            data = bytes(await self._stream.receive_some(_PIECE))
            if not data and self._http.their_state is h11.SEND_RESPONSE:
                raise HttpError("the connection was closed without an answer")
            self._http.receive_data(data)


async def connect(url: str, tls: ssl.SSLContext | None) -> Connection:
    """Connect to the server of a URL.

    Raises:
        HttpError: there is no connection in time, or TLS fails.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    with _failing(), trio.fail_after(_CONNECT_TIMEOUT_S):
        tcp = await trio.open_tcp_stream(host, port)
        for option in _KEEP_ALIVE:
            tcp.setsockopt(*option)
        if tls is None:
            return Connection(tcp, parts.netloc)
        secure = trio.SSLStream(_Audible(tcp), tls, server_hostname=host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(tcp)
            raise
        return Connection(secure, parts.netloc)


@contextmanager
def _failing() -> Iterator[None]:
    """Turn any failure of a connection into an HttpError."""
    try:
        yield
    except trio.TooSlowError as error:
        raise HttpError("no connection in time") from error
    except (OSError, trio.BrokenResourceError, h11.ProtocolError) as error:
        raise HttpError(reason(error)) from error


def reason(error: BaseException) -> str:
    """The text of an error or of its cause."""
    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate does not pass (registry.ca): {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and cause.reason:
        said = cause.reason.replace("_", " ").lower()
        if any(alert in said for alert in _ALERTS):
            return f"it refuses our certificate, or that we have none (registry.cert): {said}"
        return f"TLS: {said}"
    return str(cause or error) or type(error).__name__
