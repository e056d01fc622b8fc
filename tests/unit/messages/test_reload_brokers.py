"""Brokers that a reload adds, moves, changes and removes, at a real daemon without privileges."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import trio

from tests.control_fake import client
from tests.local_daemons import ports, running

from .test_daemon import INFO, Broker, published

LIMITER = """
{head}
[limiter]
name = "messages{pid}"
listen = "127.0.0.1:{gossip}"
control = "{directory}/control.sock"
"""
BROKER = """
[[broker]]
name = "{name}"
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
match = {{ broker = {brokers}, topic = "city.>" }}
"""
CONNECT = b'CONNECT {"verbose":false}\r\n'


class Host:
    """A daemon's configuration, and the servers behind it."""

    def __init__(self, directory: Path, gossip: int, servers: dict[str, int]) -> None:
        self.file = directory / "drld.toml"
        self.servers = servers
        self._directory = directory
        self._gossip = gossip

    def write(self, limit: str = "", **brokers: tuple[int, str]) -> None:
        """Have these brokers: by name, the port that listens and the server behind it."""
        text = LIMITER.format(
            head="" if limit else "limit = []",
            pid=os.getpid(),
            gossip=self._gossip,
            directory=self._directory,
        )
        for name, (listen, server) in brokers.items():
            text += BROKER.format(name=name, listen=listen, server=self.servers[server])
        self.file.write_text(text + limit)


@asynccontextmanager
async def host(directory: Path, **behind: Broker) -> AsyncIterator[Host]:
    """A host with these servers, by their names."""
    (gossip,) = ports(1, socket.SOCK_DGRAM)
    numbers = ports(len(behind), socket.SOCK_STREAM)
    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            for server, port in zip(behind.values(), numbers, strict=True):
                await nursery.start(
                    lambda task_status, server=server, port=port: trio.serve_tcp(
                        server.serve, port, host="127.0.0.1", task_status=task_status
                    )
                )
            yield Host(directory, gossip, dict(zip(behind, numbers, strict=True)))
            nursery.cancel_scope.cancel()


async def connected(port: int, info: bytes = INFO) -> trio.SocketStream:
    """A client that has been greeted."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    said = b""
    while not said.endswith(b"\n"):
        said += await stream.receive_some()
    assert said == info
    await stream.send_all(CONNECT)
    return stream


async def ended(stream: trio.SocketStream) -> None:
    """Return when the client has been sent the end."""
    while await stream.receive_some():
        pass
    await stream.aclose()


def refused(port: int) -> bool:
    """Whether no socket listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


async def reload(api: httpx.AsyncClient) -> None:
    answer = await api.post("/v1/reload")
    assert answer.status_code == 200, answer.text


async def test_a_daemon_without_brokers_gets_some_and_moves_them(tmp_path: Path) -> None:
    one, two = Broker(), Broker()
    at = ports(4, socket.SOCK_STREAM)
    async with host(tmp_path, one=one, two=two) as made:
        made.write()
        async with running(made.file) as process, client(tmp_path / "control.sock") as api:
            made.write(one=(at[0], "one"))
            await reload(api)
            of_one = await connected(at[0])
            # The second comes with the first limit; both go on while the first one moves.
            made.write(
                LIMIT.format(rate="9/d", brokers='"two"'), one=(at[0], "one"), two=(at[1], "two")
            )
            await reload(api)
            of_two = await connected(at[1])
            await of_two.send_all(published("abc"))
            await two.has(["a", "b"])
            waiting = trio.socket.socket()
            await waiting.connect(("127.0.0.1", at[0]))
            made.write(
                LIMIT.format(rate="1000/s", brokers='"two"'),
                one=(at[2], "one"),
                two=(at[1], "two"),
            )
            process.send_signal(signal.SIGHUP)
            await two.has([*"abc"])
            assert refused(at[0])
            # A client that had connected before the move is served, and the others stay.
            assert (await waiting.recv(4096)).startswith(b"INFO ")
            waiting.close()
            await of_one.send_all(published("x"))
            await one.has(["x"])
            await of_two.send_all(published("d"))
            await two.has([*"abcd"])
            again = await connected(at[2])
            for stream in (of_one, of_two, again):
                await stream.aclose()


async def test_a_bad_configuration_changes_nothing(tmp_path: Path) -> None:
    one = Broker()
    at = ports(3, socket.SOCK_STREAM)
    async with host(tmp_path, one=one) as made:
        made.write(one=(at[0], "one"))
        async with running(made.file), client(tmp_path / "control.sock") as api:
            stream = await connected(at[0])
            with socket.create_server(("127.0.0.1", at[2])):
                made.write(one=(at[1], "one"), two=(at[2], "one"))
                answer = await api.post("/v1/reload")
                assert answer.status_code == 422
                assert f"broker.listen: cannot bind 127.0.0.1:{at[2]}" in answer.text
            assert refused(at[1])
            made.file.write_text(made.file.read_text().replace("nats", "mqtt"))
            answer = await api.post("/v1/reload")
            assert "broker one: protocol: cannot change from 'nats' to 'mqtt'" in answer.text
            assert refused(at[1])
            await stream.send_all(published("a"))
            await one.has(["a"])
            await (await connected(at[0])).aclose()
            await stream.aclose()


async def test_a_broker_that_is_removed_delivers_what_waits_first(tmp_path: Path) -> None:
    one, two = Broker(), Broker()
    at = ports(2, socket.SOCK_STREAM)
    async with host(tmp_path, one=one, two=two) as made:
        both = {"one": (at[0], "one"), "two": (at[1], "two")}
        made.write(LIMIT.format(rate="9/d", brokers='["one", "two"]'), **both)
        async with running(made.file), client(tmp_path / "control.sock") as api:
            of_one, of_two = [await connected(port) for port in at]
            await of_one.send_all(published("abcdefg"))
            await one.has(["a", "b"])
            while (await api.get("/v1/limits/city")).json()["waits"]["waiting"] != 5:
                pass
            made.write(LIMIT.format(rate="1000/s", brokers='"two"'), two=both["two"])
            await reload(api)
            await one.has([*"abcdefg"])
            await ended(of_one)
            assert refused(at[0])
            await of_two.send_all(published("x"))
            await two.has(["x"])
            await of_two.aclose()
            counters = (await api.get("/v1/status")).json()["datapath"]["counters"]
            assert counters["broker_accepted"] == 2
            assert counters["broker_undelivered"] == 0


async def test_clients_of_a_broker_with_another_server_come_back_to_that_one(
    tmp_path: Path,
) -> None:
    other = INFO.replace(b'"x"', b'"y"')
    (port,) = ports(1, socket.SOCK_STREAM)
    async with host(tmp_path, one=Broker(), two=Broker(other)) as made:
        made.write(one=(port, "one"))
        async with running(made.file), client(tmp_path / "control.sock") as api:
            stream = await connected(port)
            made.write(one=(port, "two"))
            await reload(api)
            await ended(stream)
            await (await connected(port, other)).aclose()
