"""Unmodified clients with a keep-alive of 5 s, each with a message that waits for 60 s.

They are no part of the suite, because they take more than a minute (docs/messages-verification.md).
`test_clients.py` has shorter times.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from drld.spec import LimitSpec
from testbed.messages.servers import Server, nats_server
from tests.brokers.front import Front, Observer, front, run
from tests.local_daemons import ports
from tests.unit.messages.made import message_limit

COUNT = 20
ALL = list(range(COUNT))
WAIT_S, KEEP_ALIVE_S = 60, 5
"""mosquitto ends a connection that is silent for 1.5 keep-alives, and a NATS server one that leaves
three pings unanswered: both much sooner than the last message leaves."""
CASES = {"paho": "4/1", "gmqtt": "5/1", "aiomqtt": "5/2"}
TOPICS = ["limited/tool", *(f"limited/{case}" for case in CASES.values())]


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Server]:
    pings, (port,) = tmp_path / "pings.conf", ports(1, socket.SOCK_STREAM)
    pings.write_text(f'ping_interval: "{KEEP_ALIVE_S}s"\nping_max: 2\n')
    with nats_server(tmp_path, port, "-c", str(pings)) as server:
        yield server


def last_waits(topic: str, id: int, broker: str = "mqtt") -> LimitSpec:
    """A limit whose burst is one message too small, and which has a token a minute."""
    return message_limit(topic, id=id, rate=1 / WAIT_S, burst=COUNT - 1, broker=(broker,))


async def library(made: Front, name: str, case: str) -> None:
    (said,) = await run(name, made.port, f"--case={case}", f"--keep-alive={KEEP_ALIVE_S}")
    assert said["numbers"] == ALL


async def mosquitto_pub(made: Front) -> None:
    options = ["-p", str(made.port), "-k", str(KEEP_ALIVE_S), "-t", TOPICS[0], "-q", "1", "-l"]
    lines = "".join(f"{number}\n" for number in ALL).encode()
    done = await trio.run_process(
        ["mosquitto_pub", *options], stdin=lines, capture_stdout=True, stderr=subprocess.STDOUT
    )
    assert done.stdout == b""


async def nats_py(made: Front, straight: int) -> None:
    assert (await run("nats", made.port, straight, "plain"))["numbers"] == ALL


async def test_connections_live_while_messages_wait(
    server: Server, nats: Server, observer: Observer
) -> None:
    limits = [last_waits(topic, number) for number, topic in enumerate(TOPICS, 1)]
    other = last_waits("limited.>", 1, "nats")
    async with front(server, "mqtt", *limits) as mqtt, front(nats, "nats", other) as second:
        begun_s = trio.current_time()
        async with trio.open_nursery() as nursery:
            for name, case in CASES.items():
                nursery.start_soon(library, mqtt, name, case)
            nursery.start_soon(mosquitto_pub, mqtt)
            nursery.start_soon(nats_py, second, nats.port)
        assert trio.current_time() - begun_s > WAIT_S
        assert [mqtt.waited(limit.id) for limit in limits] == [1] * len(TOPICS)
        assert second.waited() == 1
        # No client has connected again.
        assert mqtt.broker.journal.counts["accepted"] == len(TOPICS)
        assert second.broker.journal.counts["accepted"] == 1
        await observer.until(len(TOPICS) * COUNT)
        assert [observer.numbers(topic) for topic in TOPICS] == [ALL] * len(TOPICS)
    assert "exceeded timeout" not in server.log
    assert "Stale" not in nats.log
