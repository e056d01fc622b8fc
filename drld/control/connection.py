"""One connection of an HTTP/1.1 server: an ASGI application answers, h11 speaks, under bounds.

- A request, head and body, is complete within `REQUEST_S` of the connection, or of the answer
  before it, be it sent byte by byte; a TLS handshake is a part of that. The request is read whole
  before the application sees it, so that no application waits for a client.
- What is written is taken within `WRITE_S`, or the connection ends.
- The connection ends at once, and with it what is done for it, when the client has gone or the
  daemon stops.
- There is no HTTP/2, no websocket and no upgrade: a local API of short requests needs none.
- Requests wait for their turn (`Turns`), so that the daemon's other tasks have theirs.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from email.utils import formatdate
from typing import NoReturn
from urllib.parse import unquote

import h11
import trio
from starlette.types import ASGIApp, Message

from drld.control.turns import Turns

REQUEST_S = 5.0
WRITE_S = 20.0
MAX_HEAD_BYTES = 4096
MAX_BODY_BYTES = 65_536
"""Some hundred limits fit."""
_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?]*)(.*)")
"""A target in absolute form: its host, and its path and query."""
_READ_BYTES = 4096
_MAX_AHEAD_BYTES = 65_536
"""Bytes that a client may send ahead while its last request is being answered."""


class _RefusedError(Exception):
    """A request that is not passed to the application; `status` is the answer's."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class Connection:
    """A client; `serve` ends with it."""

    def __init__(
        self,
        app: ASGIApp,
        turns: Turns,
        stream: trio.abc.Stream,
        peer: object,
        max_head_bytes: int = MAX_HEAD_BYTES,
    ) -> None:
        """`peer` is found in the `state` of each request."""
        self._app = app
        self._turns = turns
        self._stream = stream
        self._peer = peer
        self._max_head_bytes = max_head_bytes
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=max_head_bytes)
        self._method = b""
        self._whole = trio.CancelScope()
        self._idle = False
        """Whether it waits for the first byte of a request."""
        self._draining = False
        self._head: list[h11.Event] = []
        """The head of an answer of known length, until its body goes out with it."""

    async def serve(self) -> None:
        """Answer until the client goes, or keeps us waiting for too long."""
        async with self._stream:
            with self._whole:
                while await self._exchange() and not self._draining:
                    self._http.start_next_cycle()

    def drain(self) -> None:
        """End the connection: at once if no request has begun, else after the answer."""
        self._draining = True
        if self._idle:
            self._whole.cancel()

    async def _exchange(self) -> bool:
        """Read a request and answer it; return whether another may follow."""
        try:
            request = None
            with trio.move_on_after(REQUEST_S):
                request = await self._read()
            if request is None:
                return False
            # However long the answer takes: that is ours to say.
            await self._answer(*request)
        except _RefusedError as refusal:
            await self._refuse(refusal.status, str(refusal))
        except h11.RemoteProtocolError as error:
            text = f"the request must be HTTP/1.1, with %XX for all but ASCII: {error}"
            await self._refuse(error.error_status_hint, text)
        return self._http.our_state is self._http.their_state is h11.DONE

    async def _read(self) -> tuple[h11.Request, bytes]:
        """The next request, and its body.

        Raises:
            _RefusedError: the request is too large, or may be.
            h11.RemoteProtocolError: it is no HTTP.
        """
        self._method = b""
        self._idle = not self._http.trailing_data[0]
        request = await self._event()
        assert isinstance(request, h11.Request)
        self._method = request.method
        size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        most = self._max_head_bytes
        if size > most:
            raise _RefusedError(431, f"the head of a request is limited to {most} bytes")
        headers = dict(request.headers)
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or len(length) > 5 or int(length) > MAX_BODY_BYTES:
            text = f"the body of a request has at most {MAX_BODY_BYTES} bytes, and a Content-Length"
            raise _RefusedError(413, text)
        if self._http.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        body = b""
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
        return request, body

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._receive()
            # A daemon that is late is not the client's delay: what has come is read.
            with trio.CancelScope(shield=True):
                await self._turns.wait()
            self._http.receive_data(data)
        return event

    async def _receive(self) -> bytes:
        """The next bytes of the client; if it has gone, the connection ends."""
        try:
            if data := bytes(await self._stream.receive_some(_READ_BYTES)):
                self._idle = False
                return data
        except trio.BrokenResourceError:
            pass
        return await self._end()

    async def _end(self) -> NoReturn:
        self._whole.cancel()
        await trio.sleep_forever()

    async def _answer(self, request: h11.Request, body: bytes) -> None:
        target, headers = _origin_form(request)
        path, _, query = target.partition(b"?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http",
            "path": unquote(path.decode("latin-1")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": None,
            "server": None,
            "state": {"peer": self._peer},
        }
        received: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if not received:
                # The application is cancelled when the client goes.
                await trio.sleep_forever()
            return received.pop()

        await self._turns.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch)
            await self._app(scope, receive, self._reply)
            nursery.cancel_scope.cancel()

    async def _watch(self) -> None:
        """End the connection when the client goes; keep a little of what it sends ahead."""
        while len(self._http.trailing_data[0]) < _MAX_AHEAD_BYTES:
            self._http.receive_data(await self._receive())

    async def _reply(self, message: Message) -> None:
        """Send a part of the application's answer."""
        if message["type"] == "http.response.start":
            date = (b"date", formatdate(usegmt=True).encode())
            headers = [*message.get("headers", ()), date]
            if self._draining:
                headers.append((b"connection", b"close"))
            head = h11.Response(status_code=message["status"], headers=headers)
            if not any(name.lower() == b"content-length" for name, _ in headers):
                # A stream may have nothing to say for a while, and its client waits for the head.
                await self._send(head)
                return
            # Two system calls would wake the client twice.
            self._head = [head]
            return
        events, self._head = self._head, []
        if message.get("body") and self._method != b"HEAD":
            events.append(h11.Data(message["body"]))
        if not message.get("more_body"):
            events.append(h11.EndOfMessage())
        await self._send(*events)

    async def _refuse(self, status: int, error: str) -> None:
        """Answer what is not passed to the application; the connection ends then."""
        body = json.dumps({"error": error}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await self._reply({"type": "http.response.start", "status": status, "headers": headers})
        await self._reply({"type": "http.response.body", "body": body})

    async def _send(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        with trio.move_on_after(WRITE_S), suppress(trio.BrokenResourceError):
            await self._stream.send_all(data)
            return
        await self._end()


def _origin_form(request: h11.Request) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the target of a request as a path with its query, and the headers.

    A client that takes the server for a proxy sends a whole URI as its target. Then the host of the
    URI replaces `Host` (RFC 9112, 3.2.2).

    Raises:
        _RefusedError: the URI has no host, or a user.
    """
    headers = list(request.headers)
    if (absolute := _ABSOLUTE.fullmatch(request.target)) is None:
        return request.target, headers
    host, target = absolute.groups()
    if not host or b"@" in host:
        raise _RefusedError(400, "the target of a request must have a host, and no user")
    headers = [(b"host", host), *((name, it) for name, it in headers if name != b"host")]
    return target if target.startswith(b"/") else b"/" + target, headers
