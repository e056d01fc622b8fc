"""A front of a broker in the test's own process, and the messages that reach the broker."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

import paho.mqtt.client as mqtt
import trio

from drld.messages.datapath import MessageDatapath
from drld.messages.front.arrival import Stamps
from drld.messages.front.broker_front import BrokerFront
from drld.messages.front.coarse_stamps import ReadStamps
from drld.messages.front.pump import Pump
from drld.messages.spec import BrokerSpec
from drld.spec import LimitSpec, ServerTls
from tests.brokers.raw_mqtt import RawClient, connect
from tests.certificates import Certificate
from tests.unit.messages.made import attach

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Front:
    """The front of one broker: its address and its limits."""

    port: int
    datapath: MessageDatapath
    broker: BrokerFront
    pump: Pump

    def waited(self, limit_id: int = 1) -> int:
        """Messages that have waited for a limit."""
        return self.datapath.waits(limit_id).waited

    async def until_waiting(self, count: int) -> None:
        """Return when `count` messages wait for the first limit."""
        while self.datapath.waits(1).waiting < count:
            await trio.sleep(0.001)


class Behind(Protocol):
    """A broker, or what stands before it."""

    host: str
    port: int


class Clock:
    """The monotonic clock of a front that a test may set forward."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def __call__(self) -> int:
        return time.monotonic_ns() + self.ahead_ns


@asynccontextmanager
async def front(
    server: Behind,
    protocol: str,
    *limits: LimitSpec,
    certificate: Certificate | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
    stamps: Stamps | None = None,
    **settings: Any,
) -> AsyncIterator[Front]:
    """A front of a broker, which is named as its protocol; `settings` are those of `BrokerSpec`.

    Without `stamps`, messages have the time of reading.
    """
    tls = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate.cert, certificate.key)
        tls = ServerTls(context, 0.0)
    with closing(socket.create_server(("127.0.0.1", 0), backlog=100)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        address = server.host, server.port
        spec = BrokerSpec(
            *(protocol, protocol, (("127.0.0.1", port),), address), tls=tls, **settings
        )
        datapath = MessageDatapath([spec], Random(1))
        attach(datapath, *limits, now_ns=clock())
        pump = Pump(datapath.gate, clock)
        broker = BrokerFront(spec, pump, stamps or ReadStamps())
        broker.listen([listener])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pump.run)
            try:
                yield Front(port, datapath, broker, pump)
            finally:
                nursery.cancel_scope.cancel()
                broker.keep(())
                broker.fail()
                pump.close()
        assert pump.errors == 0


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds."""
    with trio.fail_after(120):
        while not condition():
            await trio.sleep(0.002)


class Clients:
    """Clients of a front, which the fixture closes at the end of the test."""

    def __init__(self) -> None:
        self.opened: list[RawClient] = []

    async def open(self, running: Front, name: str, **options: Any) -> RawClient:
        """A client that the broker has accepted."""
        client = await self.dial(running)
        await client.send(connect(name, **options))
        assert await client.receive() == (2, 0, b"\0\0")
        return client

    async def dial(self, running: Front) -> RawClient:
        """A client that is connected and has sent nothing."""
        client = RawClient(await trio.open_tcp_stream("127.0.0.1", running.port))
        self.opened.append(client)
        return client


async def run(module: str, *arguments: object) -> Any:
    """The output of a client at its end."""
    done = await trio.run_process(
        [sys.executable, "-m", f"tests.brokers.{module}_client", *map(str, arguments)],
        cwd=ROOT,
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()
    return json.loads(done.stdout.splitlines()[-1])


class Observer:
    """A subscriber to everything, straight at a broker of MQTT."""

    def __init__(self, port: int) -> None:
        """Connect, and return once it hears all that comes."""
        self.heard: list[mqtt.MQTTMessage] = []
        self._changed = threading.Condition()
        subscribed = threading.Event()
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2  # type: ignore[attr-defined]  # it re-exports it without saying so
        )
        self._client.on_message = self._hear
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        self._client.subscribe("#", 2)
        assert subscribed.wait(PATIENCE_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    async def until(self, count: int) -> list[mqtt.MQTTMessage]:
        """The messages, once there are `count` of them."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: len(self.heard) >= count, PATIENCE_S)

        assert await trio.to_thread.run_sync(wait), len(self.heard)
        return self.heard

    def numbers(self, topic: str) -> list[int]:
        """The messages of a topic, as `Job.payload` numbers them."""
        return [int(it.payload.split()[0]) for it in self.heard if it.topic == topic]

    def _hear(self, client: Any, data: Any, message: mqtt.MQTTMessage) -> None:
        with self._changed:
            self.heard.append(message)
            self._changed.notify_all()
