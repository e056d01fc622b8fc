"""Publishers that lose no message that they know of, and counters at the brokers themselves."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

import trio

from drld.model import NS_PER_S
from testbed.chaos.message_log import Arrival, Log
from testbed.messages.real.frames import (
    Frames,
    Message,
    Protocol,
    confirmed,
    delivery,
    greeting,
    receipt,
    subscription,
)

AGAIN_S = 0.05
"""Time until the next attempt to connect, s."""
_READ_BYTES = 1 << 16
_IDENTIFIERS = 65_535
_NATS_PING, _NATS_PONG = b"PING\r\n", b"PONG\r\n"


class LostError(Exception):
    """The connection has ended."""


class Client:
    """A connection to a broker, or to the limiter before it."""

    def __init__(self, protocol: Protocol, stream: trio.SocketStream) -> None:
        self._protocol = protocol
        self._stream = stream
        self._frames = Frames(protocol)
        self._sending = trio.Lock()
        self._ready: deque[bytes] = deque()
        """Whole frames that have come, and that no caller has taken yet."""

    async def send(self, data: bytes) -> None:
        """Send some bytes.

        Raises:
            LostError: the connection has ended.
        """
        try:
            async with self._sending:
                await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LostError from error

    async def subscribe(self, topic: str) -> None:
        """Subscribe to a topic, and read nothing of it.

        Raises:
            LostError: the connection has ended.
        """
        await self.send(subscription(self._protocol, topic))

    async def end(self) -> None:
        """End this side, and wait until the other has ended."""
        with suppress(trio.BrokenResourceError):
            await self._stream.send_eof()
            while await self._stream.receive_some(_READ_BYTES):
                pass  # Pings of a NATS server: nothing can be answered any more.

    async def receive(self) -> AsyncIterator[bytes]:
        """Receive frames until the connection ends; pings of a NATS server are answered.

        Raises:
            LostError: the connection has ended.
        """
        while True:
            while self._ready:
                frame = self._ready.popleft()
                if frame == _NATS_PING:
                    await self.send(_NATS_PONG)
                else:
                    yield frame
            try:
                data = await self._stream.receive_some(_READ_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise LostError from error
            if not data:
                raise LostError
            self._ready.extend(self._frames.feed(data))

    async def welcomed(self) -> None:
        """Wait for the broker's answer to the greeting.

        Raises:
            LostError: the broker refuses it, or the connection has ended.
        """
        async for frame in self.receive():
            if frame == _NATS_PONG:
                return
            if frame[0] == 0x20 and self._protocol == "mqtt":
                if frame[3]:
                    raise LostError
                return


@asynccontextmanager
async def connected(
    protocol: Protocol,
    address: tuple[str, int],
    name: str,
    *,
    keep_alive_s: int = 0,
    clean: bool = True,
    room: int = 0,
) -> AsyncIterator[Client]:
    """A client that the broker has welcomed.

    `room` is the kernel's for what it has not read and cannot send, bytes; 0: as usual.

    Raises:
        LostError: the broker cannot be reached, or refuses it.
    """
    made = trio.socket.socket()
    with made:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if room:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        try:
            await made.connect(address)
        except OSError as error:
            raise LostError from error
        client = Client(protocol, trio.SocketStream(made))
        await client.send(greeting(protocol, name, keep_alive_s=keep_alive_s, clean=clean))
        await client.welcomed()
        yield client


class Publisher:
    """Publishes on a schedule of its own, whatever becomes of its messages."""

    def __init__(
        self,
        protocol: Protocol,
        address: tuple[str, int],
        topic: str,
        number: int,
        *,
        log: Log,
        may_connect: Callable[[tuple[str, int]], bool],
    ) -> None:
        """`may_connect` is asked before each connection to an address."""
        self._protocol = protocol
        self._address = address
        self._topic = topic
        self._number = number
        self._log = log
        self._may_connect = may_connect
        self._made = 0
        self._open: dict[int, Message] = {}
        """Messages that are not confirmed, in their order."""
        self._unsent: deque[int] = deque()
        """Messages that have not been sent on this connection."""
        self._in_flight: deque[int] = deque()
        """Messages that have been sent on this connection."""
        self._news = trio.Event()
        self._connection = trio.CancelScope()

    @property
    def unconfirmed(self) -> int:
        """The number of messages that are not confirmed."""
        return len(self._open)

    def publish(self, scheduled_ns: int) -> None:
        """Have another message, which was to be sent at this time."""
        self._open[self._made] = Message(self._number, self._made, scheduled_ns)
        self._unsent.append(self._made)
        self._made += 1
        self._news.set()

    async def keep_publishing(self, rate: float, rng: Random | None, until: trio.Event) -> None:
        """Publish at this mean rate, a second, until the event: at random times, or evenly."""
        at_s = time.monotonic()
        while not until.is_set():
            at_s += rng.expovariate(rate) if rng else 1 / rate
            await trio.sleep(max(at_s - time.monotonic(), 0))
            self.publish(int(at_s * NS_PER_S))

    def move(self, address: tuple[str, int]) -> None:
        """Connect to another limiter, at once."""
        self._address = address
        self._connection.cancel()

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        while True:
            if self._may_connect(self._address):
                self._connection = trio.CancelScope()
                with self._connection, suppress(LostError):
                    await self._connect()
            await trio.sleep(AGAIN_S)

    async def _connect(self) -> None:
        name = f"p{self._number}"
        async with connected(self._protocol, self._address, name) as client:
            self._unsent = deque(self._open)
            self._in_flight.clear()
            async with trio.open_nursery() as nursery:
                for act in (self._send, self._receive):
                    nursery.start_soon(_until_lost, act, client, nursery.cancel_scope)

    async def _send(self, client: Client) -> None:
        while True:
            while self._unsent:
                number = self._unsent.popleft()
                key = self._number, number
                again = self._log.sent[key] > 0
                self._log.sent[key] += 1
                self._in_flight.append(number)
                await client.send(confirmed(
                    self._protocol, self._topic, self._open[number], _identifier(number),
                    again=again,
                ))  # fmt: skip
            self._news = trio.Event()
            await self._news.wait()

    async def _receive(self, client: Client) -> None:
        async for frame in client.receive():
            found = delivery(self._protocol, frame)
            if found is None or found.message is not None:
                continue
            # Receipts come in the order of the messages.
            number = self._in_flight.popleft()
            if found.identifier not in (0, _identifier(number)):
                raise AssertionError(f"a receipt for {found.identifier}, not for {number}")
            self._log.confirmed.add((self._number, number))
            del self._open[number]


async def _until_lost(
    act: Callable[[Client], Awaitable[None]], client: Client, scope: trio.CancelScope
) -> None:
    """Act until the connection has ended, and end what else goes on with it."""
    with suppress(LostError):
        await act(client)
    scope.cancel()


def _identifier(number: int) -> int:
    """The identifier of MQTT's packet with a publisher's message."""
    return number % _IDENTIFIERS + 1


class Counter:
    """Subscribes to a topic at a broker itself, and takes down what comes."""

    def __init__(self, protocol: Protocol, address: tuple[str, int], topic: str, log: Log) -> None:
        self._protocol = protocol
        self._address = address
        self._topic = topic
        self._log = log
        self.subscribed = False
        """Whether it gets what is published now."""

    async def run(self) -> None:
        """Subscribe, again after each loss of the connection, until cancelled."""
        while True:
            try:
                await self._count()
            except LostError:
                self.subscribed = False
            await trio.sleep(AGAIN_S)

    async def _count(self) -> None:
        protocol = self._protocol
        async with connected(protocol, self._address, "counter", clean=False) as client:
            await client.send(subscription(protocol, self._topic, qos=1))
            async for frame in client.receive():
                at_ns = time.monotonic_ns()
                if frame[0] == 0x90 or frame == _NATS_PONG:
                    self.subscribed = True
                found = delivery(protocol, frame)
                if found is None or found.message is None:
                    continue
                if found.identifier:
                    await client.send(receipt(found.identifier))
                if not found.again:
                    self._log.came.append(Arrival(*found.message, at_ns))
