"""Clients' real addresses through a real HAProxy: before drld, behind it, and on both sides."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from drld.messages.spec import ByClient
from testbed.messages.servers import Server
from testbed.programs import environment, program
from tests.brokers.front import Clients, front
from tests.brokers.raw_mqtt import RawClient, connect, publish
from tests.unit.messages.made import message_limit

CONFIG = """
global
    log stdout format raw local0
defaults
    mode tcp
    timeout connect 60s
    timeout client 600s
    timeout server 600s
    log global
    option logasap
    log-format "%ci %cp"
"""


class Proxy:
    """A HAProxy in TCP mode, which logs the address of each client that it connects."""

    def __init__(self, port: int) -> None:
        self.host, self.port = "127.0.0.1", port
        self._log = ""
        self._news = trio.Condition()

    async def read(self, log: trio.abc.ReceiveStream) -> None:
        async for piece in log:
            async with self._news:
                self._log += piece.decode()
                self._news.notify_all()

    async def until(self, address: tuple[str, int]) -> None:
        """Return when it has connected a client with this address."""
        with trio.fail_after(120):
            async with self._news:
                while "{} {}\n".format(*address) not in self._log:
                    await self._news.wait()


@asynccontextmanager
async def haproxy(
    directory: Path, accepts: str, server: tuple[str, int], sends: str, host: str = "127.0.0.1"
) -> AsyncIterator[Proxy]:
    """One between clients and a server; `accepts` and `sends` are options of the two sides.

    It gets a socket that listens: no other process can take its port meanwhile.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    async with trio.open_nursery() as nursery:
        with socket.create_server((host, 0), family=family) as listener:
            port, fd = listener.getsockname()[1], listener.fileno()
            file = directory / f"haproxy-{port}.cfg"
            file.write_text(
                CONFIG + f"listen tcp\n    bind fd@{fd} {accepts}\n    server it "
                f"{server[0]}:{server[1]} {sends}\n"
            )
            process = await nursery.start(
                partial(
                    trio.run_process,
                    [program("haproxy"), "-f", str(file)],
                    env=environment("haproxy"),
                    capture_stdout=False,
                    stdout=subprocess.PIPE,
                    check=False,
                    pass_fds=[fd],
                )
            )
        made = Proxy(port)
        nursery.start_soon(made.read, process.stdout)
        yield made
        process.kill()
        await process.wait()
        nursery.cancel_scope.cancel()


async def opened(
    clients: Clients, name: str, port: int, source: str, host: str = "127.0.0.1"
) -> tuple[RawClient, tuple[str, int]]:
    """A client from this source that the broker has accepted, and its address."""
    stream = await trio.open_tcp_stream(host, port, local_address=source)
    client = RawClient(stream)
    clients.opened.append(client)
    await client.send(connect(name))
    assert await client.receive() == (2, 0, b"\0\0")
    address = stream.socket.getsockname()
    return client, (address[0], address[1])


@pytest.mark.parametrize("sends", ["send-proxy", "send-proxy-v2"])
async def test_each_client_behind_a_proxy_has_a_bucket_by_its_own_address(
    server: Server, clients: Clients, tmp_path: Path, sends: str
) -> None:
    limit = message_limit("limited/#", rate=0.001, burst=2, client=ByClient.ADDRESS)
    async with front(server, "mqtt", limit, accept_proxy=True) as running:
        own = "127.0.0.1", running.port
        async with haproxy(tmp_path, "", own, sends) as proxy:
            sources = ("127.0.0.2", "127.0.0.3")
            found = [await opened(clients, source, proxy.port, source) for source in sources]
            for client, _ in found:
                await client.send(b"".join(publish("limited/a", b"%d" % n) for n in range(3)))
            await running.until_waiting(2)
            lanes = {connection.lane.address for connection in running.broker.connections}
            assert lanes >= {*sources}
            assert running.datapath.waits(1).clients == 2
            # Another connection of one of them finds its bucket empty.
            again, _ = await opened(clients, "again", proxy.port, sources[0])
            await again.send(publish("limited/a", b"3"))
            await running.until_waiting(3)


async def test_a_client_by_ipv6_behind_a_proxy_is_known_by_its_address(
    server: Server, clients: Clients, tmp_path: Path
) -> None:
    limit = message_limit("limited/#", rate=0.001, burst=1, client=ByClient.ADDRESS)
    async with front(server, "mqtt", limit, accept_proxy=True) as running:
        target = "127.0.0.1", running.port
        async with haproxy(tmp_path, "", target, "send-proxy-v2", "::1") as proxy:
            client, _ = await opened(clients, "six", proxy.port, "::1", "::1")
            await client.send(publish("limited/a", b"0"))
            await client.send(publish("limited/a", b"1"))
            await running.until_waiting(1)
            assert "::1" in {connection.lane.address for connection in running.broker.connections}


async def test_the_broker_is_told_the_real_address(
    server: Server, clients: Clients, tmp_path: Path
) -> None:
    target = server.host, server.port
    async with (
        haproxy(tmp_path, "accept-proxy", target, "") as behind,
        front(behind, "mqtt", message_limit(), send_proxy=True) as running,
    ):
        _, address = await opened(clients, "one", running.port, "127.0.0.2")
        await behind.until(address)


async def test_the_real_address_passes_drld_between_two_proxies(
    server: Server, clients: Clients, tmp_path: Path
) -> None:
    target = server.host, server.port
    async with (
        haproxy(tmp_path, "accept-proxy", target, "") as behind,
        front(
            behind,
            "mqtt",
            message_limit(),
            accept_proxy=True,
            send_proxy=True,
        ) as running,
    ):
        own = "127.0.0.1", running.port
        async with haproxy(tmp_path, "", own, "send-proxy-v2") as before:
            _, address = await opened(clients, "one", before.port, "127.0.0.4")
            await behind.until(address)


async def test_a_client_without_the_header_is_refused(server: Server, clients: Clients) -> None:
    async with front(server, "mqtt", message_limit(), accept_proxy=True) as running:
        client = await clients.dial(running)
        await client.send(connect("one"))
        with suppress(trio.BrokenResourceError):
            assert await client.receive() is None
        assert running.broker.journal.counts["malformed"] == 1
