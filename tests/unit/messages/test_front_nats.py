"""A front before a real nats-server that ends connections which do not answer its pings."""

from __future__ import annotations

import socket
from pathlib import Path

import trio

from testbed.messages.servers import nats_server
from tests.brokers.front import front, until
from tests.local_daemons import ports
from tests.unit.messages.made import attach, message_limit
from tests.unit.messages.test_front_strangers import RawNats, nats_connect

PATIENT_S = 3
"""With `ping_interval` 1 s and `ping_max` 2, the server ends a silent connection then."""
LIMIT = message_limit("limited.>", rate=1 / (2 * PATIENT_S), burst=1, broker=("nats",))
COUNT = 400
PUBS = b"".join(b"PUB limited.a 1000\r\n%01000d\r\n" % number for number in range(COUNT))


async def test_a_publisher_that_is_held_back_stays_connected(tmp_path: Path) -> None:
    """The client's answers to pings are behind messages that drld does not read yet."""
    configuration = tmp_path / "nats.conf"
    configuration.write_text('ping_interval: "1s"\nping_max: 2\n')
    (port,) = ports(1, socket.SOCK_STREAM)
    with nats_server(tmp_path, port, "-c", str(configuration)) as server:
        async with front(server, "nats", LIMIT, hold=1 << 16) as running, trio.open_nursery() as by:
            publisher, observer = [
                RawNats(await trio.open_tcp_stream("127.0.0.1", at)) for at in (running.port, port)
            ]
            for client in (publisher, observer):
                await client.stream.send_all(nats_connect(None))
            await observer.stream.send_all(b"SUB limited.a 1\r\nPING\r\n")
            await observer.until(b"PONG")
            by.start_soon(publisher.stream.send_all, PUBS + b"PING\r\n")
            by.start_soon(_answer, observer)
            await until(lambda: running.waited() > 0)
            (connection,) = running.broker.connections
            await until(lambda: observer.said.count(b"MSG") == 2 or connection.broker.ended)
            assert not connection.broker.ended
            assert not connection.client.link.reads
            attach(running.datapath, now_ns=running.pump.reactor.clock())
            running.pump.wake()
            await until(lambda: observer.said.count(b"MSG") == COUNT)
            said = await publisher.until(b"PONG")
            assert said.count(b"PING") <= 1, "the server asks once, to measure the round trip"
            numbers = [int(line) for line in observer.said.split(b"\r\n") if line.isdigit()]
            assert numbers == list(range(COUNT))
            by.cancel_scope.cancel()
        for client in (publisher, observer):
            await client.stream.aclose()


async def _answer(client: RawNats) -> None:
    """Read the server's words, and answer its pings."""
    async for data in client.stream:
        client.said += data
        if b"PING" in data:
            await client.stream.send_all(b"PONG\r\n")
