"""Real brokers behind real daemons, in a network namespace of this process's own."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drld.config.toml_text import toml
from testbed import netns
from testbed.errors import MeasurementError
from testbed.messages.real.frames import TOPIC, Protocol
from testbed.messages.servers import mosquitto, nats_server

_ROOT = Path(__file__).parents[3]
_GOSSIP, _FRONT, _SERVER = 7946, 1883, 2000
"""Ports; brokers differ in theirs, as their files are called by them."""
_PATIENCE_S = 120.0
_POLL_S = 0.05


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
    daemons: list[subprocess.Popen[bytes]]

    def ask(self, number: int, path: str) -> Any:
        """The answer of a daemon's control socket."""
        return _ask(self.directory / f"m{number}.sock", path)

    def limit(self, number: int) -> dict[str, Any]:
        """What a daemon says of its limit."""
        (found,) = self.ask(number, "/v1/limits")
        assert isinstance(found, dict)
        return found

    def waits(self, number: int) -> dict[str, Any]:
        """What a daemon says of the messages that waited."""
        found: dict[str, Any] = self.limit(number)["waits"]
        return found


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("drld", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _ask(path: Path, what: str) -> Any:
    connection = _UnixConnection(path)
    try:
        connection.request("GET", what)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


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
    made = Stage([], [], directory, [])
    with ExitStack() as stack:
        for number in range(brokers):
            host = _address(number)
            start = mosquitto if protocol == "mqtt" else nats_server
            stack.enter_context(start(directory, _SERVER + number, host=host))
            made.servers.append((host, _SERVER + number))
            made.fronts.append((host, _FRONT))
            file = directory / f"m{number}.toml"
            file.write_text(_document(directory, protocol, brokers, number, limit))
            log = stack.enter_context(file.with_suffix(".log").open("wb"))
            process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM", "--"),
                    *(sys.executable, "-m", "drld", "--config", str(file)),
                ],
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                stderr=log,
                cwd=_ROOT,
            )
            stack.callback(_stop, process)
            made.daemons.append(process)
        for number in range(brokers):
            _await_ready(made, number)
        yield made


def _await_ready(stage: Stage, number: int) -> None:
    """Wait until a daemon takes clients and is connected to all its peers."""
    until_s = time.monotonic() + _PATIENCE_S
    while stage.daemons[number].poll() is None and time.monotonic() < until_s:
        try:
            status = stage.ask(number, "/v1/status")
        except OSError:
            status = {}
        peers = status.get("peers", {"connected": 0, "configured": 1})
        if status.get("ready") and peers["connected"] == peers["configured"]:
            return
        time.sleep(_POLL_S)
    log = (stage.directory / f"m{number}.log").read_text(errors="replace")
    raise MeasurementError(f"daemon {number} is not ready: {log[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Helper:
    """A process of `testbed.messages.real.load`."""

    def __init__(self, role: str, job: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig", "TERM", "--"),
                *(sys.executable, "-m", "testbed.messages.real.load", role),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
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
    longest_ns = schedule[-1][0] + int(_PATIENCE_S * 1e9)
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
