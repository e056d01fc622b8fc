"""Unmodified clients through drld in front of a real mosquitto and a real nats-server.

Each publishes above a limit, so that most of its messages wait. None is lost, doubled or out of
order, as a subscriber that is straight at the broker sees.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from drld.messages.spec import Excess
from drld.spec import LimitSpec
from testbed.messages.servers import Server, nats_server
from tests.brokers.front import Observer, front, run
from tests.certificates import authority, signed
from tests.local_daemons import ports
from tests.unit.messages.made import message_limit

COUNT = 20
LISTEN = ("stdbuf", "-oL", "mosquitto_sub")
"""The subscriber's command; it reports its subscription at once, without a buffer."""
ALL = list(range(COUNT))
CASES = [f"{version}/{qos}" for version in (4, 5) for qos in (0, 1, 2)]


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Server]:
    (port,) = ports(1, socket.SOCK_STREAM)
    with nats_server(tmp_path, port) as server:
        yield server


def waits(rate: float = 60, burst: float = 5, topic: str = "limited/#") -> LimitSpec:
    return message_limit(topic, rate=rate, burst=burst)


async def publish(library: str, port: int, cases: Sequence[str], *options: object) -> Any:
    """The client's report on each case, by `VERSION/QOS`."""
    return await run(library, port, *(f"--case={case}" for case in cases), *options)


@pytest.mark.parametrize("library", ["paho", "gmqtt", "aiomqtt"])
async def test_clients_of_mqtt_lose_no_message(
    server: Server, observer: Observer, library: str
) -> None:
    async with front(server, "mqtt", waits()) as made:
        said = await publish(library, made.port, CASES)
        assert [case["numbers"] for case in said] == [ALL for _ in CASES]
        await observer.until(len(CASES) * COUNT)
        assert [observer.numbers(f"limited/{case}") for case in CASES] == [ALL for _ in CASES]
        assert made.waited() > COUNT


@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
async def test_the_clients_of_mosquitto_lose_no_message(
    server: Server, observer: Observer, version: str
) -> None:
    async with front(server, "mqtt", waits()) as made:
        with trio.fail_after(300):
            for qos in ("0", "1", "2"):
                topic = f"limited/{qos}"
                common = ["-p", str(made.port), "-V", version, "-q", qos, "-t", topic]
                count = len(observer.heard)
                async with trio.open_nursery() as nursery:
                    listening = await nursery.start(
                        lambda task_status, common=common: trio.run_process(
                            [*LISTEN, *common, "-C", str(COUNT), "-d"],
                            capture_stdout=False,
                            stdout=subprocess.PIPE,
                            task_status=task_status,
                        )
                    )
                    said = b""
                    while b"Subscribed" not in said:
                        said += await listening.stdout.receive_some()
                    lines = "".join(f"{number}\n" for number in ALL).encode()
                    await trio.run_process(["mosquitto_pub", *common, "-l"], stdin=lines)
                    async for part in listening.stdout:
                        said += part
                got = [int(line) for line in said.splitlines() if line.isdigit()]
                assert got == ALL
                await observer.until(count + COUNT)
                assert observer.numbers(topic) == ALL
        assert made.waited() > COUNT


@pytest.mark.parametrize("library", ["paho", "gmqtt"])
async def test_topic_aliases_do_not_escape_the_limit(
    server: Server, observer: Observer, library: str
) -> None:
    async with front(server, "mqtt", waits()) as made:
        said = await publish(library, made.port, CASES[3:], "--alias")
        assert [case["numbers"] for case in said] == [ALL] * 3
        await observer.until(3 * COUNT)
        assert [observer.numbers(f"limited/{case}") for case in CASES[3:]] == [ALL] * 3
        assert made.waited() > COUNT


async def test_large_payloads_arrive_whole(server: Server, observer: Observer) -> None:
    async with front(server, "mqtt", waits()) as made:
        (said,) = await publish("paho", made.port, ["5/1"], "--size=300000")
        assert said["numbers"] == ALL
        await observer.until(COUNT)
        assert observer.numbers("limited/5/1") == ALL
        assert {len(message.payload) for message in observer.heard} == {300_000}


async def test_a_client_that_waits_longer_than_its_keep_alive_lives(
    server: Server, observer: Observer
) -> None:
    """The broker ends a connection that is silent for 1.5 s; each message waits for longer."""
    async with front(server, "mqtt", waits(rate=0.4, burst=1)) as made:
        (said,) = await publish("paho", made.port, ["4/1"], "--keep-alive=1", "--count=3")
        assert said["numbers"] == ALL[:3]
        assert made.waited() == 2
        assert "exceeded timeout" not in server.log


async def test_dropped_messages_are_acknowledged(server: Server, observer: Observer) -> None:
    """The broker gets what has tokens, and the client is told of the rest where MQTT 5 can."""
    drops = [
        message_limit(f"limited/{case}", id=number, rate=1 / 600, burst=3, excess=Excess.DROP)
        for number, case in enumerate(CASES, 1)
    ]
    async with front(server, "mqtt", *drops) as made:
        said = dict(zip(CASES, await publish("paho", made.port, CASES, "--deaf"), strict=True))
        await observer.until(3 * len(CASES))
        for number, case in enumerate(CASES, 1):
            dropped = made.datapath.read(number, time.monotonic_ns()).dropped_items
            assert dropped == COUNT - 3
            assert observer.numbers(f"limited/{case}") == [0, 1, 2]
            # paho does not read the reasons of QoS 2.
            told = COUNT - 3 if case == "5/1" else 0
            assert sorted(said[case]["reasons"]) == [0] * (COUNT - told) + [0x97] * told


async def test_a_will_comes_once_and_after_what_waits(server: Server, observer: Observer) -> None:
    """The client is killed while 50 of its messages wait."""
    async with front(server, "mqtt", waits(rate=50, burst=1)) as made:
        command = ["mosquitto_pub", "-p", str(made.port), "-t", "limited/a", "-l"]
        will = ["--will-topic", "will", "--will-payload", "51", "--will-qos", "1"]
        async with trio.open_nursery() as nursery:
            client = await nursery.start(
                lambda task_status: trio.run_process(
                    [*command, *will], stdin=subprocess.PIPE, check=False, task_status=task_status
                )
            )
            await client.stdin.send_all("".join(f"{it}\n" for it in range(51)).encode())
            await made.until_waiting(25)
            client.send_signal(signal.SIGKILL)
        heard = await observer.until(52)
        assert [int(message.payload) for message in heard] == list(range(52))
        assert heard[-1].topic == "will"


async def test_retained_messages_stay(server: Server) -> None:
    async with front(server, "mqtt", waits(rate=20, burst=1)) as made:
        common = ["-p", str(made.port), "-t", "limited/a"]
        lines = "".join(f"{number}\n" for number in range(10)).encode()
        await trio.run_process(["mosquitto_pub", *common, "-q", "1", "-r", "-l"], stdin=lines)
        listening = ["mosquitto_sub", *common, "-C", "1", "-F", "%r %p"]
        got = await trio.run_process(listening, capture_stdout=True)
        assert got.stdout == b"1 9\n"
        assert made.waited() > 0


async def test_shared_subscriptions_get_each_message_once(server: Server) -> None:
    async with front(server, "mqtt", waits(topic="#", burst=1)) as made:
        said: list[bytes] = []
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:

                async def listen(ready: trio.Event) -> None:
                    command = [*LISTEN, "-p", str(made.port), "-V", "mqttv5", "-d"]
                    process = await trio.lowlevel.open_process(
                        [*command, "-t", "$share/group/limited/#", "-q", "1", "-C", "10"],
                        stdout=subprocess.PIPE,
                    )
                    assert process.stdout is not None
                    part = b""
                    async for more in process.stdout:
                        part += more
                        if b"Subscribed" in part:
                            ready.set()
                    said.append(part)
                    await process.wait()

                for _ in range(2):
                    ready = trio.Event()
                    nursery.start_soon(listen, ready)
                    await ready.wait()
                lines = "".join(f"{number}\n" for number in ALL).encode()
                command = ["mosquitto_pub", "-p", str(made.port), "-t", "limited/a", "-q", "1"]
                await trio.run_process([*command, "-l"], stdin=lines)
        numbers = [[int(it) for it in part.splitlines() if it.isdigit()] for part in said]
        assert sorted(it for part in numbers for it in part) == ALL
        assert all(part == sorted(part) for part in numbers)


async def test_mqtt_over_tls_loses_no_message(
    server: Server, observer: Observer, tmp_path: Path
) -> None:
    signer = authority(tmp_path, "authority")
    certificate = signed(tmp_path, "server", signer, "serverAuth")
    trust = ("--authority", signer.cert)
    async with front(server, "mqtt", waits(), certificate=certificate) as made:
        for number, library in enumerate(("paho", "gmqtt", "aiomqtt")):
            (said,) = await publish(library, made.port, [CASES[number]], *trust)
            assert said["numbers"] == ALL
        await observer.until(3 * COUNT)
        assert [observer.numbers(f"limited/{case}") for case in CASES[:3]] == [ALL] * 3
        assert made.waited() > 0


@pytest.mark.parametrize("scene", ["plain", "headers", "large", "requests", "queues"])
async def test_clients_of_nats_lose_no_message(nats: Server, scene: str) -> None:
    # A slow host takes its time for 300 kB, and each message would find its token.
    rate = 5 if scene == "large" else 60
    limit = message_limit("limited.>", rate=rate, burst=5, broker=("nats",))
    async with front(nats, "nats", limit) as made:
        said = await run("nats", made.port, nats.port, scene)
        assert said["numbers"] == ALL
        # Each request waits for the reply to the one before it, and the queue gets what comes
        # straight from a publisher.
        assert made.waited() > 0 or scene in ("requests", "queues")


async def test_nats_over_tls_loses_no_message(nats: Server, tmp_path: Path) -> None:
    signer = authority(tmp_path, "authority")
    certificate = signed(tmp_path, "server", signer, "serverAuth")
    limit = message_limit("limited.>", rate=60, burst=5, broker=("nats",))
    async with front(nats, "nats", limit, certificate=certificate) as made:
        said = await run("nats", made.port, nats.port, "plain", signer.cert)
        assert said["numbers"] == ALL
        assert made.waited() > 0
