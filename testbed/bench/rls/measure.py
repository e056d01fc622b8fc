"""What a call of Envoy's rate limit service costs its server, beside grpcio's servers without work.

Each contestant is a process of its own on the second processor, and gets the same questions in
turn, over one connection with 32 calls open. Processor time is the kernel's account of the process:
everything is in it, system calls too. A call of drld's is decided under two limits, and a twentieth
is refused; those of grpcio's decode and decide nothing. Ratios are medians of those within a round,
so a host that is busy for a while changes them little.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from testbed.bench.lanes import Setting
from testbed.bench.rls.client import OPEN, Client, question
from testbed.bench.rls.empty import THREADS
from testbed.bench.summary import Outcome, Row
from testbed.errors import MeasurementError
from testbed.server_process import ServerProcess

PROCESSOR, RATE = ("processor time of a call", "us"), ("calls a second", "")
RATIO = ("of drld's processor time", "")
GOAL_US = 230.0
USERS, REFUSED = 10_000, 20
"""Callers; every so many-th call is refused."""
_CONFIG = """
[limiter]
name = "bench-rls"
listen = "127.0.0.1:{gossip}"
control = "{control}"
[requests]
listen = "127.0.0.1:{port}"
[[limit]]
id = 1
name = "all"
unit = "requests"
rate = "10000000/s"
burst = 1000000
match = {{ namespace = "bench" }}
[[limit]]
id = 2
name = "free"
unit = "requests"
rate = "10000000/s"
burst = 1000000
match = {{ namespace = "bench", where = {{ plan = "free" }} }}
[[limit]]
id = 3
name = "none"
unit = "requests"
rate = "9/d"
burst = 1
match = {{ namespace = "bench", where = {{ plan = "none" }} }}
"""


class _Server(NamedTuple):
    name: str
    process: ServerProcess
    client: Client

    def processor_s(self) -> float:
        """Processor time of all its threads, with that of the kernel for it."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_bytes().rpartition(b")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(setting: Setting) -> Outcome:
    """All contestants in turn."""
    calls, rounds = setting.choose(10_000, 2_000), setting.choose(15, 3)
    free = [question(f"user-{number:05}", "free") for number in range(USERS)]
    none = question("user-none", "none")
    asked = [none if it % REFUSED == 0 else free[it % USERS] for it in range(calls)]
    times: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        servers = [stack.enter_context(it) for it in _servers(setting)]
        for number in range(rounds + 1):
            setting.progress.step(f"round {number} of {rounds}")
            for server in servers if number % 2 == 0 else reversed(servers):
                taken, elapsed = _slice(server, asked)
                # The first round warms up.
                if number:
                    times.setdefault(server.name, []).append(1e6 * taken / calls)
                    rates.setdefault(server.name, []).append(calls / elapsed)
    drld = servers[0].name
    rows = []
    for name, its in times.items():
        rows.append(Row("unary", name, *PROCESSOR, its, below=GOAL_US if name == drld else None))
        rows.append(Row("unary", name, *RATE, rates[name]))
        if name != drld:
            ratios = [it / ours for it, ours in zip(its, times[drld], strict=True)]
            rows.append(Row("unary", name, *RATIO, ratios))
    notes = [
        f"{OPEN} calls open on one connection; {USERS:,} callers",
        f"drld: two limits a call, one call in {REFUSED} refused; grpcio: no limits, no decoding",
    ]
    return Outcome(rows, PROCESSOR[0], notes)


def _slice(server: _Server, asked: Sequence[bytes]) -> tuple[float, float]:
    """Processor time and time of all calls, s."""
    began, before = time.perf_counter(), server.processor_s()
    refused = server.client.ask(asked)
    found = server.processor_s() - before, time.perf_counter() - began
    if server.name.startswith("drld") and not 0 <= len(asked) // REFUSED - refused <= 1:
        raise MeasurementError(f"{refused} of {len(asked)} calls were refused")
    return found


def _servers(setting: Setting) -> Iterator[AbstractContextManager[_Server]]:
    port, gossip = _free_port(), _free_port()
    file = setting.state / "rls.toml"
    control = setting.state / "rls.sock"
    file.write_text(_CONFIG.format(port=port, gossip=gossip, control=control))
    yield _server(setting, "drld", ["drld", "--config", str(file)], port)
    for name, kind in (
        ("grpc.aio, empty", "aio"),
        (f"grpcio, {THREADS} threads, empty", "threads"),
    ):
        port = _free_port()
        yield _server(setting, name, ["testbed.bench.rls.empty", kind, str(port)], port)


@contextmanager
def _server(setting: Setting, name: str, module: Sequence[str], port: int) -> Iterator[_Server]:
    command = ["taskset", "-c", str(setting.cpus[1]), sys.executable, "-m", *module]
    process = ServerProcess(name, command, setting.state / f"{port}.log")
    with process.serving(partial(Client, port)) as client, closing(client):
        yield _Server(name, process, client)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
