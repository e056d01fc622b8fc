"""The client for asyncio: one connection carries the questions of all tasks.

A client may outlive its event loop, as with several calls of `asyncio.run`, and several threads may
each have a loop. Each loop has a connection of its own, because no other loop can read it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Generic, TypeVar

from drld.client.base import AsyncClient
from drld.client.protocol.availability import Availability
from drld.client.protocol.conversation import Conversation
from drld.client.protocol.exchange import Exchange, chunks
from drld.client.protocol.model import Answer, Question
from drld.errors import WireError

if TYPE_CHECKING:
    from ssl import SSLContext

T = TypeVar("T")


class Client(AsyncClient):
    """Asks one limiter, for the tasks of any number of event loops."""

    def _prepare(self) -> None:
        """See `BaseClient`."""
        self._lines = _OfLoops(_Line, _Line.end)

    async def __aenter__(self) -> Client:
        """Return the client; the context closes its connections."""
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        # asyncio closes the socket in its next pass.
        await asyncio.sleep(0)

    def close(self) -> None:
        """Close the connections; the next question opens another."""
        self._lines.end_all()

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """See `AsyncClient.ask`."""
        now_ns = monotonic_ns()
        if not self._availability.may_ask(now_ns):
            return self._availability.without(questions, now_ns)
        try:
            answers = await self._asked_in_time(questions)
        except (OSError, WireError, asyncio.TimeoutError) as error:
            self._lines.here().end(error)
            return self._without(questions, error)
        self._answered(len(questions))
        return answers

    def _lock(self) -> AbstractAsyncContextManager[object]:
        return _LoopLock()

    async def _asked_in_time(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the limiter's answers; see `_asked`.

        Raises:
            asyncio.TimeoutError: there are none in time.
        """
        asked = asyncio.ensure_future(self._asked(questions))
        try:
            # Answers that have come count, although the event loop stood still. `wait_for` drops
            # them since Python 3.12.
            await asyncio.wait((asked,), timeout=self._patience_s(questions))
            if not asked.done():
                raise asyncio.TimeoutError
            return asked.result()
        finally:
            asked.cancel()

    async def _asked(self, questions: Sequence[Question]) -> list[Answer]:
        """Return the limiter's answers.

        Raises:
            OSError: there is no connection, or it has ended.
            WireError: the bytes are no answers.
        """
        connection = await self._connected()
        used = connection.used
        try:
            return await connection.answers(questions, self._availability)
        except ConnectionError:
            if not used:
                raise
        # The limiter has ended an idle connection, or has restarted.
        connection = await self._connected()
        return await connection.answers(questions, self._availability)

    async def _connected(self) -> _Connection:
        """Return the connection, a new one if need be.

        Raises:
            OSError: no process listens at the address.
        """
        if self._forked():
            self._prepare()
        return await self._lines.here().connected(self._address, self._tls, self._process)


class _OfLoops(Generic[T]):
    """A value for each event loop, which ends with the loop."""

    def __init__(self, make: Callable[[], T], end: Callable[[T], object]) -> None:
        """`make` returns the value of a new loop, and `end` ends that of a closed one."""
        self._make = make
        self._end = end
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def here(self) -> T:
        """Return the value of the running loop."""
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            # Other threads may do the same now.
            for closed in [it for it in [*self._values] if it.is_closed()]:
                if (old := self._values.pop(closed, None)) is not None:
                    self._end(old)
            value = self._values[loop] = self._make()
        return value

    def end_all(self) -> None:
        """End the values of all loops, each in its own thread."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for loop, value in [*self._values.items()]:
            if loop.is_running() and loop is not here:
                with suppress(RuntimeError):  # The loop has been closed meanwhile.
                    loop.call_soon_threadsafe(self._end, value)
            else:
                self._end(value)


class _Line:
    """The connection of one event loop."""

    def __init__(self) -> None:
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def connected(
        self, address: tuple[str, int] | str, tls: SSLContext | None, process: int
    ) -> _Connection:
        """Return the connection, a new one if need be.

        Raises:
            OSError: no process listens at the address.
        """
        async with self._connecting:
            if self._connection is None or self._connection.ended:
                connection = _Connection()
                await connection.open(address, tls, process)
                self._connection = connection
            return self._connection

    def end(self, reason: object = "the client has been closed") -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.end(reason)


class _LoopLock:
    """A lock of the running event loop: a lease is used in as many loops as its client."""

    def __init__(self) -> None:
        self._locks = _OfLoops(asyncio.Lock, lambda _: None)

    async def __aenter__(self) -> None:
        await self._locks.here().acquire()

    async def __aexit__(self, *_: object) -> None:
        self._locks.here().release()


class _Connection(asyncio.Protocol):
    """One connection, and the calls that wait for its answers."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self._ended = False
        self.used = False
        """Whether the limiter has ever answered on this connection."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[Exchange, asyncio.Future[None]] = {}

    @property
    def ended(self) -> bool:
        """Whether no further question can be asked here; `connection_lost` comes a pass later."""
        return self._ended or (self._transport is not None and self._transport.is_closing())

    async def open(
        self, address: tuple[str, int] | str, tls: SSLContext | None, process: int
    ) -> None:
        """Connect, and send the greeting.

        Raises:
            OSError: no process listens at the address.
        """
        if isinstance(address, str):
            await self._loop.create_unix_connection(lambda: self, address)
        else:
            await self._loop.create_connection(lambda: self, *address, ssl=tls)
        assert self._transport is not None
        self._transport.write(self.conversation.greeting(process))

    async def answers(
        self, questions: Sequence[Question], availability: Availability
    ) -> list[Answer]:
        """Ask, and wait for the answers.

        Raises:
            ConnectionError: the connection has ended.
        """
        assert self._transport is not None
        found: list[Answer] = []
        # A part waits for the answers to the one before, so that other calls come between.
        for chunk in chunks(questions):
            if self.ended:  # Another call has ended it since the last part.
                raise ConnectionError("it has ended the connection")
            exchange = Exchange(self.conversation, availability, chunk, monotonic_ns())
            self._transport.write(exchange.data)
            if exchange.missing:
                self._waiting[exchange] = self._loop.create_future()
                try:
                    await self._waiting[exchange]
                finally:
                    self._waiting.pop(exchange, None)
            found += exchange.answers()
        self.used = True
        return found

    def end(self, reason: object) -> None:
        """End the connection, and all calls that wait."""
        if not self._ended:
            self._ended = True
            if self._transport is not None:
                if self._loop.is_closed():
                    # The transport can do nothing. The limiter has its place back at once, and the
                    # file descriptor is closed with the garbage. The sockets of other loops, such
                    # as uvloop's, have no `shutdown`.
                    with suppress(OSError, TypeError, AttributeError):
                        self._transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
                else:
                    self._transport.abort()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionError(str(reason)))

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            events = self.conversation.receive(data)
        except WireError as error:
            self.end(error)
            return
        for exchange, future in self._waiting.items():
            exchange.receive(events)
            if not exchange.missing and not future.done():
                future.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.end(exc or "it has ended the connection")
