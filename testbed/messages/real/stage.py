"""Real brokers behind real daemons, in a network namespace of this process's own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from drld.config.toml_text import toml
from testbed import netns
from testbed.errors import MeasurementError
from testbed.messages.real.frames import TOPIC, Protocol
from testbed.messages.servers import mosquitto, nats_server
from testbed.server_process import PATIENCE_S, UNTIL_PARENT_ENDS, ServerProcess

_GOSSIP, _FRONT, _SERVER = 7946, 1883, 2000
"""Ports; brokers differ in theirs, as their files are called by them."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of the topic, in messages."""

    rate: int
    burst: int
    allocator: str | Mapping[str, object] = "static"
    """Its name, or a table of its name and parameters."""
    hold: str = "64MiB"
    """Most bytes that may wait at each broker: by default, the product's own default."""


@dataclass(slots=True)
class Stage:
    """What runs."""

    fronts: list[tuple[str, int]]
    """Where publishers connect."""
    servers: list[tuple[str, int]]
    """Where the brokers themselves listen."""
    directory: Path

    def ask(self, number: int, path: str) -> Any:
        """The answer of a daemon's control socket."""
        transport = httpx.HTTPTransport(uds=str(self.directory / f"m{number}.sock"))
        with httpx.Client(transport=transport, timeout=PATIENCE_S) as client:
            return client.get(f"http://drld{path}").json()

    def connected(self, number: int) -> bool | None:
        """Whether a daemon takes clients, and is connected to all its peers; None: not yet."""
        status = self.ask(number, "/v1/status")
        peers = status["peers"]
        return (status["ready"] and peers["connected"] == peers["configured"]) or None

    def limit(self, number: int) -> dict[str, Any]:
        """What a daemon says of its limit."""
        (found,) = self.ask(number, "/v1/limits")
        assert isinstance(found, dict)
        return found

    def waits(self, number: int) -> dict[str, Any]:
        """What a daemon says of the messages that waited."""
        found: dict[str, Any] = self.limit(number)["waits"]
        return found


def _address(number: int) -> str:
    return f"127.0.0.{10 + number}"


def _document(directory: Path, protocol: Protocol, brokers: int, number: int, limit: Limit) -> str:
    """The configuration of the daemon in front of a broker."""
    return toml(
        {
            "limiter": {
                "name": f"m{number}",
                "listen": f"{_address(number)}:{_GOSSIP}",
                "control": f"{directory}/m{number}.sock",
            },
            "broker": [
                {
                    "name": "broker",
                    "protocol": protocol,
                    "listen": f"{_address(number)}:{_FRONT}",
                    "server": f"{_address(number)}:{_SERVER + number}",
                    "hold": limit.hold,
                }
            ],
            "limit": [
                {
                    "id": 1,
                    "name": "topic",
                    "unit": "messages",
                    "rate": f"{limit.rate}/s",
                    "burst": f"{limit.burst}msg",
                    "allocator": limit.allocator,
                    "match": {"broker": "broker", "topic": TOPIC[protocol]},
                }
            ],
            "peer": [
                {"name": f"m{other}", "address": f"{_address(other)}:{_GOSSIP}"}
                for other in range(brokers)
                if other != number
            ],
        }
    )


@contextmanager
def namespace() -> Iterator[Path]:
    """This process, and what it starts, in a namespace of its own; yields a directory for files."""
    with netns.workspace() as directory:
        name = netns.namespace("messages")
        netns.run(["ip", "netns", "add", name])
        netns.enter(name)
        netns.run(["ip", "link", "set", "lo", "up"])
        yield directory


@contextmanager
def staged(directory: Path, protocol: Protocol, brokers: int, limit: Limit) -> Iterator[Stage]:
    """So many brokers, each with a daemon in front, all connected.

    Raises:
        MeasurementError: one has ended, or is not ready in time.
    """
    made, daemons = Stage([], [], directory), list[ServerProcess]()
    with ExitStack() as stack:
        for number in range(brokers):
            host = _address(number)
            start = mosquitto if protocol == "mqtt" else nats_server
            stack.enter_context(start(directory, _SERVER + number, host=host))
            made.servers.append((host, _SERVER + number))
            made.fronts.append((host, _FRONT))
            file = directory / f"m{number}.toml"
            file.write_text(_document(directory, protocol, brokers, number, limit))
            command = [*UNTIL_PARENT_ENDS, sys.executable, "-m", "drld", "--config", str(file)]
            daemon = ServerProcess(file.stem, command, file.with_suffix(".log"))
            daemons.append(daemon)
            stack.callback(daemon.stop)
            daemon.launch()
        for number, daemon in enumerate(daemons):
            daemon.ready(partial(made.connected, number))
        yield made


class Helper:
    """A process of `testbed.messages.real.load`."""

    def __init__(self, role: str, job: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [
                *UNTIL_PARENT_ENDS,
                *(sys.executable, "-m", "testbed.messages.real.load", role),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.send(job)

    def send(self, message: object) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """Read a line of it.

        Raises:
            MeasurementError: it has ended, or reports an error.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "ended"}
        if "error" in answer:
            raise MeasurementError(f"publishers or subscribers: {answer['error']}")
        return answer

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate()


def carried(
    stage: Stage, protocol: Protocol, place_of: Sequence[int], schedule: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """Have messages sent at their times, and received at the brokers themselves.

    Args:
        stage: the brokers and daemons.
        protocol: of the brokers.
        place_of: for each publisher, the number of its broker.
        schedule: when which publisher sends, ns since the begin.

    Returns:
        What came: publisher, number, scheduled time and time of arrival, ns. And by how much each
        message was sent late, ns.

    Raises:
        MeasurementError: a message was lost, doubled or overtaken by one of its publisher.
    """
    longest_ns = schedule[-1][0] + int(PATIENCE_S * 1e9)
    jobs: dict[str, dict[str, Any]] = {
        "subscribe": {"protocol": protocol, "addresses": stage.servers, "messages": len(schedule)},
        "publish": {
            "protocol": protocol, "addresses": stage.fronts, "place_of": place_of,
            "schedule": schedule,
        },
    }  # fmt: skip
    with ExitStack() as stack:
        helpers = {role: Helper(role, job) for role, job in jobs.items()}
        for helper in helpers.values():
            stack.callback(helper.close)
        for helper in helpers.values():
            helper.receive()
        begin_ns = time.monotonic_ns() + 500_000_000
        helpers["subscribe"].send(begin_ns + longest_ns)
        helpers["publish"].send(begin_ns)
        lags = helpers["publish"].receive()["lags"]
        came = helpers["subscribe"].receive()["came"]
    _check(came, len(place_of), len(schedule))
    return came, lags


def _check(came: Sequence[tuple[int, int, int, int]], publishers: int, sent: int) -> None:
    """See that each message came once, and each publisher's in their order."""
    following = [0] * publishers
    for publisher, number, _, _ in came:
        if number != following[publisher]:
            before = following[publisher]
            raise MeasurementError(f"{before} messages of a publisher came before its {number}th")
        following[publisher] += 1
    if len(came) != sent:
        raise MeasurementError(f"{len(came)} of {sent} messages came")
