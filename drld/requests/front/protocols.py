"""The protocol of a client, by the first bytes of its connection: one address serves all protocols.

HTTP/1.1 has no first bytes of its own. A client speaks it if its first bytes are those of no other
protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeAlias

import trio

from drld.control.connection import REQUEST_S
from drld.control.server import Conversation

Begin: TypeAlias = Callable[[trio.abc.Stream, object], Conversation]
"""Makes the server of a client from its stream and its name."""
_READ_BYTES = 4096


class ReadAhead(trio.abc.Stream):
    """A stream with bytes that have been read already: they come first."""

    def __init__(self, stream: trio.abc.Stream, read: bytes) -> None:
        self._stream = stream
        self._read = read

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """See `trio.abc.ReceiveStream`."""
        if not self._read:
            return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        most = len(self._read) if max_bytes is None else max_bytes
        first, self._read = self._read[:most], self._read[most:]
        return first

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream`."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream`."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource`."""
        await self._stream.aclose()


class Negotiated:
    """A connection that chooses its protocol by its first bytes."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        who: Callable[[], object],
        otherwise: Begin,
        protocols: Mapping[bytes, Begin],
    ) -> None:
        """Serve a client by its first bytes.

        Args:
            stream: the client's stream.
            who: returns the client, once it has sent something.
            otherwise: serves a client of none of the protocols.
            protocols: the protocols by their first bytes.
        """
        self._stream = stream
        self._who = who
        self._otherwise = otherwise
        self._protocols = protocols
        self._waiting = trio.CancelScope()
        self._begun: Conversation | None = None

    async def serve(self) -> None:
        """See `Conversation.serve`."""
        read = b""
        try:
            with self._waiting, suppress(trio.BrokenResourceError):
                self._waiting.deadline = trio.current_time() + REQUEST_S
                read = await self._first()
        finally:
            if not read:
                await trio.aclose_forcefully(self._stream)
        if not read:
            return
        begin = next((it for magic, it in self._protocols.items() if read.startswith(magic)), None)
        self._begun = (begin or self._otherwise)(ReadAhead(self._stream, read), self._who())
        await self._begun.serve()

    def drain(self) -> None:
        """See `Conversation.drain`."""
        if self._begun is None:
            self._waiting.cancel()
        else:
            self._begun.drain()

    async def _first(self) -> bytes:
        """Return enough first bytes to tell the protocol; none: the client has closed the
        connection."""
        read = b""
        while True:
            more = bytes(await self._stream.receive_some(_READ_BYTES))
            read += more
            if not more or not any(
                len(read) < len(magic) and magic.startswith(read) for magic in self._protocols
            ):
                return read
