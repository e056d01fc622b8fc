"""A real daemon before a broker, without any privilege: limits that change while messages wait.

The broker is one that keeps what it is sent, so that each byte is seen.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import trio

from tests.certificates import authority, signed
from tests.control_fake import client
from tests.local_daemons import ports, running

INFO = b'INFO {"server_id":"x","version":"2.9.10","max_payload":1048576,"headers":true}\r\n'
CONFIG = """
{limits}
[limiter]
name = "messages{pid}"
listen = "127.0.0.1:{gossip}"
control = "{directory}/control.sock"

[[broker]]
name = "nats"
protocol = "nats"
listen = "127.0.0.1:{listen}"
server = "127.0.0.1:{server}"
"""
LIMIT = """
[[limit]]
id = 1
name = "city"
rate = "{rate}"
burst = "2msg"
match = {{ broker = "nats", topic = "city.>" }}
"""


class Broker:
    """A server that greets, answers pings, and keeps what comes."""

    def __init__(self, greeting: bytes = INFO) -> None:
        self.received = b""
        self._greeting = greeting
        self._news = trio.Condition()

    async def serve(self, stream: trio.SocketStream) -> None:
        await stream.send_all(self._greeting)
        async for piece in stream:
            await stream.send_all(b"PONG\r\n" * piece.count(b"PING\r\n"))
            async with self._news:
                self.received += piece
                self._news.notify_all()

    async def has(self, messages: list[str]) -> None:
        """Wait until these messages have come, in this order and no others."""
        async with self._news:
            while len(self.messages()) < len(messages):
                await self._news.wait()
        assert self.messages() == messages

    def messages(self) -> list[str]:
        *whole, _ = self.received.decode().split("\r\n")
        return [payload for head, payload in pairwise(whole) if head.startswith("PUB ")]


def published(texts: str) -> bytes:
    return b"".join(b"PUB city.a 1\r\n%b\r\n" % text.encode() for text in texts)


@dataclass(frozen=True)
class Behind:
    """A daemon in front of a broker, and a client that it has connected."""

    api: httpx.AsyncClient
    broker: Broker
    stream: trio.SocketStream
    write: Callable[[str | None], None]
    """Writes a configuration with this rate; None: without the limit."""

    async def change(self, rate: str | None) -> None:
        """Reload a configuration with this rate."""
        self.write(rate)
        assert (await self.api.post("/v1/reload")).status_code == 200

    async def report(self) -> Any:
        return (await self.api.get("/v1/limits/city")).json()


@asynccontextmanager
async def before_a_broker(tmp_path: Path, rate: str) -> AsyncIterator[Behind]:
    (gossip,) = ports(1, socket.SOCK_DGRAM)
    listen, server = ports(2, socket.SOCK_STREAM)
    file = tmp_path / "drld.toml"

    def write(rate: str | None) -> None:
        tables = CONFIG.format(
            limits="limit = []" if rate is None else "", pid=os.getpid(), gossip=gossip,
            directory=tmp_path, listen=listen, server=server,
        )  # fmt: skip
        file.write_text(tables + ("" if rate is None else LIMIT.format(rate=rate)))

    write(rate)
    broker = Broker()
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(trio.serve_tcp, broker.serve, server, host="127.0.0.1"))
            async with running(file), client(tmp_path / "control.sock") as api:
                stream = await trio.open_tcp_stream("127.0.0.1", listen)
                assert (await stream.receive_some()).startswith(b"INFO ")
                await stream.send_all(b'CONNECT {"verbose":false}\r\n')
                yield Behind(api, broker, stream, write)
                await stream.aclose()
            nursery.cancel_scope.cancel()


async def test_limits_change_while_messages_wait(tmp_path: Path) -> None:
    async with before_a_broker(tmp_path, "9/d") as on:
        assert (await on.api.get("/v1/status")).json()["datapath"]["name"] == "none"
        await on.stream.send_all(published("abcdefg"))
        await on.broker.has(["a", "b"])
        while (report := await on.report())["arrived_packets"] != 7:
            pass
        assert report["waits"]["waiting"] == report["waits"]["waited"] == 5
        # Another rate holds for those that wait.
        await on.change("1000/s")
        await on.broker.has([*"abcdefg"])
        await on.change("9/d")
        await on.stream.send_all(published("hijklmn"))
        while (await on.report())["arrived_packets"] != 14:
            pass
        # All that wait leave with their limit, in their order.
        await on.change(None)
        await on.broker.has([*"abcdefghijklmn"])


async def test_a_lower_rate_holds_for_thousands_that_wait(tmp_path: Path) -> None:
    """From 11,000 messages a second to 2,000, while 5,000 wait: none is lost, and none overtakes.

    They leave no faster, but for the 250 ms by which a late daemon may charge them.
    """
    # So many that 5,000 wait for 0.8 s: a busy host sees it.
    sent = [f"{number:05}" for number in range(14_000)]
    async with before_a_broker(tmp_path, "11k/s") as on:
        data = "".join(f"PUB city.a 5\r\n{text}\r\n" for text in sent).encode()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.stream.send_all, data)
            while (await on.report())["waits"]["waiting"] < 5000:
                pass
        await on.change("2k/s")
        began_s, left = trio.current_time(), (await on.report())["waits"]["waiting"]
        while on.broker.received.count(b"PUB ") < len(sent):
            await trio.sleep(0.01)
        assert trio.current_time() - began_s >= (left - 2) / 2000 - 0.25
        await on.broker.has(sent)


async def test_a_reload_reads_the_certificate_again(tmp_path: Path) -> None:
    """Clients that connect from then on see the new one."""
    ca = authority(tmp_path, "authority")
    first, second = (signed(tmp_path, name, ca, "serverAuth") for name in ("first", "second"))
    used = tmp_path / "used.pem"
    shutil.copy(first.cert, used)
    shutil.copy(first.key, tmp_path / "used.key")
    (gossip,) = ports(1, socket.SOCK_DGRAM)
    listen, server = ports(2, socket.SOCK_STREAM)
    file = tmp_path / "drld.toml"
    tables = CONFIG.format(
        limits="limit = []", pid=os.getpid(), gossip=gossip, directory=tmp_path, listen=listen,
        server=server,
    )  # fmt: skip
    file.write_text(
        tables.replace('protocol = "nats"', 'protocol = "mqtt"')
        + f'certificate = "{used}"\nkey = "{used.with_suffix(".key")}"\n'
    )
    context = ssl.create_default_context(cafile=str(ca.cert))

    async def shown() -> bytes:
        plain = await trio.open_tcp_stream("127.0.0.1", listen)
        stream = trio.SSLStream(plain, context, server_hostname="127.0.0.1")
        await stream.do_handshake()
        found = stream.getpeercert(binary_form=True)
        await trio.aclose_forcefully(stream)
        assert isinstance(found, bytes)
        return found

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            await nursery.start(
                lambda task_status: trio.serve_tcp(
                    Broker().serve, server, host="127.0.0.1", task_status=task_status
                )
            )
            async with running(file), client(tmp_path / "control.sock") as api:
                assert await shown() == ssl.PEM_cert_to_DER_cert(first.cert.read_text())
                shutil.copy(second.cert, used)
                shutil.copy(second.key, used.with_suffix(".key"))
                assert (await api.post("/v1/reload")).status_code == 200
                assert await shown() == ssl.PEM_cert_to_DER_cert(second.cert.read_text())
            nursery.cancel_scope.cancel()
