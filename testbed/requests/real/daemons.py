"""Daemons with one limit per user, each at an address of loopback of its own; no privileges."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

from testbed.errors import MeasurementError
from testbed.requests.case import Case
from testbed.server_process import UNTIL_PARENT_ENDS, ServerProcess

_GOSSIP, _FRONT = 17947, 18099
"""Ports, the same at each address; deltas have the one after that of gossip."""
_ANSWER_S = 120.0
_NO_PRIVILEGES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--")


def address(number: int) -> str:
    """The address of a limiter; runs of several processes differ by the second and third byte."""
    pid = os.getpid()
    return f"127.{1 + pid // 250 % 250}.{1 + pid % 250}.{1 + number}"


def configuration(directory: Path, case: Case, bucket: str, number: int) -> Path:
    """The file of a limiter; `bucket` is of `[[limit]]`."""
    seconds = case.per_s
    peers = "".join(
        f'\n[[peer]]\nname = "r{other}"\naddress = "{address(other)}:{_GOSSIP}"\n'
        for other in range(case.nodes) if other != number
    )  # fmt: skip
    file = directory / f"r{number}.toml"
    file.write_text(
        f"""
[limiter]
name = "r{number}"
listen = "{address(number)}:{_GOSSIP}"
control = "{directory}/r{number}.sock"
[gossip]
interval = "{case.interval_ms}ms"
[requests]
listen = ["{address(number)}:{_FRONT}"]
[[limit]]
id = 1
name = "user"
unit = "requests"
rate = "{case.rate * 60 // seconds}/min"
burst = {case.capacity}
bucket = "{bucket}"
match = {{ namespace = "api", per = "user" }}
{peers}""",
        encoding="utf-8",
    )
    return file


@contextmanager
def running(files: list[Path]) -> Iterator[None]:
    """These daemons, once all take requests; in the end they are stopped.

    Raises:
        MeasurementError: one has ended, or takes no requests in time.
    """
    unprivileged = (*UNTIL_PARENT_ENDS, *(_NO_PRIVILEGES if os.geteuid() == 0 else ()))
    daemons = [
        ServerProcess(
            file.stem,
            [*unprivileged, sys.executable, "-m", "drld", "--config", f"{file}"],
            file.with_suffix(".log"),
        )
        for file in files
    ]
    with ExitStack() as stack:
        for daemon in daemons:
            stack.callback(daemon.stop)
            daemon.launch()
        for number, daemon in enumerate(daemons):
            daemon.ready(partial(socket.create_connection, (address(number), _FRONT))).close()
        yield


class Asker:
    """A client of one limiter, over one connection."""

    def __init__(self, number: int) -> None:
        self._connection = HTTPConnection(address(number), _FRONT, timeout=_ANSWER_S)

    def ask(self, user: str) -> tuple[bool, float, float]:
        """Ask for a token; return whether there was one, and the times of question and answer, s.

        Raises:
            MeasurementError: the answer is neither yes nor no.
        """
        asked_s = time.monotonic()
        self._connection.request("GET", f"/v1/check?namespace=api&user={user}")
        answer = self._connection.getresponse()
        answer.read()
        answered_s = time.monotonic()
        if answer.status not in (200, 429):
            raise MeasurementError(f"a question was answered with status {answer.status}")
        return answer.status == 200, asked_s, answered_s

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
