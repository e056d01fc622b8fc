"""One connection to the control socket: hypercorn's HTTP/1.1, under bounds of our own.

hypercorn's server trusts its clients with time, and shields its writes from cancellation. Here

- a request is complete within `REQUEST_S` of the connection, or of the answer before it, be it sent
  byte by byte;
- what is written is taken within `WRITE_S`, or the connection ends;
- it ends at once, and with it what is done for it, when the client has gone or the daemon stops;
- there is no HTTP/2 and no websocket: a local API of short requests needs neither;
- requests wait for their turn (`Turns`), so that the daemon's other tasks have theirs.
"""

from __future__ import annotations

import math

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState

from drld.control.credentials import Credentials
from drld.control.turns import Turns

REQUEST_S = 5.0
WRITE_S = 20.0
_READ_BYTES = 4096


class Connection:
    """A client; `serve` ends with it."""

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        turns: Turns,
        stream: trio.abc.HalfCloseableStream,
        peer: Credentials,
    ) -> None:
        self._app = app
        self._config = config
        self._turns = turns
        self._stream = stream
        self._state = ConnectionState({"peer": peer})
        self._writing = trio.Lock()
        self._whole = trio.CancelScope()
        self._request = trio.CancelScope()

    async def serve(self) -> None:
        """Answer until the client goes, or keeps us waiting for too long."""
        async with self._stream:
            try:
                with self._whole:
                    await self._serve()
            except Exception:
                # What hypercorn stumbles over when an answer has lost its client is no error.
                if not self._whole.cancel_called:
                    raise

    async def _serve(self) -> None:
        async with TaskGroup() as tasks:
            protocol = _Http1(
                self._app,
                self._config,
                WorkerContext(None),
                tasks,
                self._state,
                False,
                None,
                None,
                self._send,
            )
            await self._read(protocol)
            self._whole.cancel()

    async def _read(self, protocol: _Http1) -> None:
        self._expect_request()
        with self._request:
            while data := await self._receive():
                await self._turns.wait()
                await protocol.handle(RawData(data))
                if protocol.connection.their_state not in (h11.IDLE, h11.SEND_BODY):
                    # It is complete; how long the answer takes is ours to say.
                    self._request.deadline = math.inf

    def _expect_request(self) -> None:
        self._request.deadline = trio.current_time() + REQUEST_S

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(_READ_BYTES))
        except trio.BrokenResourceError:
            return b""

    async def _send(self, event: Event) -> None:
        if isinstance(event, RawData):
            sent = False
            with trio.move_on_after(WRITE_S):
                async with self._writing:
                    sent = await self._written(event.data)
            if not sent:
                self._whole.cancel()
        elif isinstance(event, Closed):
            self._whole.cancel()
        elif isinstance(event, Updated) and event.idle:
            self._expect_request()

    async def _written(self, data: bytes) -> bool:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError:
            return False
        return True


class _Http1(H11Protocol):
    """Who asks for another protocol is answered as if he had not."""

    async def _check_protocol(self, event: h11.Request) -> None:
        """HTTP/2 is not looked for."""

    async def _create_stream(self, request: h11.Request) -> None:
        await super()._create_stream(
            h11.Request(
                method=request.method,
                target=request.target,
                http_version=request.http_version,
                headers=[pair for pair in request.headers if pair[0] != b"upgrade"],
            )
        )
