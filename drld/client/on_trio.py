"""The client for trio: one connection carries the questions of all tasks.

It has no task of its own. Of those that wait for answers one reads, for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic_ns

import trio

from drld.client.base import AsyncClient
from drld.client.protocol.availability import Availability
from drld.client.protocol.conversation import Conversation
from drld.client.protocol.exchange import Exchange, chunks
from drld.client.protocol.model import Answer, Question
from drld.errors import WireError

_READ_BYTES = 262_144
_LAST_LOOK_S = 0.02
"""The time in which bytes that have come are read after the deadline: some passes of the event
loop."""


class Client(AsyncClient):
    """Asks one limiter, for the tasks of one run."""

    def _prepare(self) -> None:
        """See `BaseClient`."""
        self._connection: _Connection | None = None
        self._connecting = trio.Lock()

    async def __aenter__(self) -> Client:
        """Return the client; the context closes its connection."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection; the next question opens another."""
        if self._connection is not None:
            await self._connection.end()

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """See `AsyncClient.ask`."""
        now_ns = monotonic_ns()
        if not self._availability.may_ask(now_ns):
            await trio.lowlevel.checkpoint()
            return self._availability.without(questions, now_ns)
        deadline = trio.current_time() + self._patience_s(questions)
        try:
            answers = await self._asked(questions, deadline)
        except (OSError, WireError, trio.TooSlowError, trio.BrokenResourceError) as error:
            await self.aclose()
            return self._without(questions, error.__cause__ or error)
        self._answered(len(questions))
        return answers

    async def _asked(self, questions: Sequence[Question], deadline: float) -> list[Answer]:
        """Return the limiter's answers.

        Raises:
            OSError: there is no connection.
            BrokenResourceError: the connection has ended.
            TooSlowError: the deadline has passed.
            WireError: the bytes are no answers.
        """
        with trio.fail_at(deadline):
            connection = await self._connected()
        used = connection.used
        try:
            return await connection.answers(questions, self._availability, deadline)
        except trio.BrokenResourceError:
            if not connection.cut:
                await connection.end()
                if not used:
                    raise
        # The limiter has ended an idle connection, or has restarted; or a call was cancelled.
        with trio.fail_at(deadline):
            connection = await self._connected()
        return await connection.answers(questions, self._availability, deadline)

    def _lock(self) -> trio.Lock:
        return trio.Lock()

    async def _connected(self) -> _Connection:
        """Return the connection, a new one if need be.

        Raises:
            OSError: no process listens at the address.
        """
        async with self._connecting:
            if self._forked():
                self._connection = None
            if self._connection is None or self._connection.ended:
                self._connection = _Connection(await self._stream(), self._process)
            return self._connection

    async def _stream(self) -> trio.abc.Stream:
        """Return a new connection.

        Raises:
            OSError: no process listens at the address.
        """
        if isinstance(self._address, str):
            return await trio.open_unix_socket(self._address)
        plain = await trio.open_tcp_stream(*self._address)
        if self._tls is None:
            return plain
        host, _ = self._address
        return trio.SSLStream(plain, self._tls, server_hostname=host, https_compatible=True)


class _Connection:
    """One connection, and the calls that wait for its answers."""

    def __init__(self, stream: trio.abc.Stream, process: int) -> None:
        self._stream = stream
        self._conversation = Conversation()
        self._unsent = self._conversation.greeting(process)
        self.ended = False
        self.used = False
        """Whether the limiter has ever answered on this connection."""
        self.cut = False
        """Whether a call that was cancelled may have sent a part of a frame. Only answers to frames
        before it can still come."""
        self._waiting: set[Exchange] = set()
        self._sending = trio.Lock()
        self._reading = trio.Lock()

    async def answers(
        self, questions: Sequence[Question], availability: Availability, deadline: float
    ) -> list[Answer]:
        """Ask, and wait for the answers.

        Raises:
            BrokenResourceError: the connection has ended.
            TooSlowError: the deadline has passed.
            WireError: no limiter answers so.
        """
        found: list[Answer] = []
        for chunk in chunks(questions):
            found += await self._exchanged(chunk, availability, deadline)
        self.used = True
        return found

    async def _exchanged(
        self, questions: Sequence[Question], availability: Availability, deadline: float
    ) -> list[Answer]:
        """Ask, and wait for the answers; see `answers`."""
        exchange = Exchange(self._conversation, availability, questions, monotonic_ns())
        self._waiting.add(exchange)
        sent = False
        try:
            with trio.fail_at(deadline):
                async with self._sending:
                    if self.cut:
                        raise trio.BrokenResourceError("a frame has been cut off")
                    data, self._unsent = self._unsent + exchange.data, b""
                    try:
                        await self._stream.send_all(data)
                        sent = True
                    except trio.Cancelled:
                        self.cut = True
                        raise
                    finally:
                        self.ended |= not sent
            with trio.move_on_at(deadline):
                await self._read_for(exchange)
            # The event loop may have stood still, and not the limiter.
            with trio.move_on_after(_LAST_LOOK_S):
                await self._read_for(exchange)
            if exchange.missing:
                raise trio.TooSlowError
            return exchange.answers()
        except trio.ClosedResourceError:
            self.ended = True
            raise trio.BrokenResourceError("it has ended the connection") from None
        finally:
            self._waiting.remove(exchange)
            if self.ended and not self._waiting:
                await self.end()

    async def end(self) -> None:
        """End the connection, and all calls that wait."""
        self.ended = True
        await trio.aclose_forcefully(self._stream)

    async def _read_for(self, exchange: Exchange) -> None:
        """Read until all answers of this call are there, or while another task reads them."""
        while exchange.missing:
            async with self._reading:
                if exchange.missing:
                    await self._read()

    async def _read(self) -> None:
        """Read the bytes that have come, for all calls that wait."""
        data = bytes(await self._stream.receive_some(_READ_BYTES))
        if not data:
            self.ended = True
            raise trio.BrokenResourceError("it has ended the connection")
        events = self._conversation.receive(data)
        for exchange in self._waiting:
            exchange.receive(events)
