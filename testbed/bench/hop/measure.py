"""`scripts/bench hop`: what a hop to a nats-server costs, beside other proxies and none.

Each contestant is a process on the second processor; broker, publishers and subscriber have the
first. In a round each gets the same messages in turn, and every other round goes backward. The
processor time is the kernel's account of the proxy's process: system calls are in it. Ratios and
added delays are medians of those within a round.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from drld.config.toml_text import toml
from drld.model import NS_PER_S
from testbed import netns
from testbed.bench.hop.client import CONNECTIONS, PROTOCOL, Publishers, quantile
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome, Row
from testbed.errors import MeasurementError
from testbed.messages.real.frames import SIZE, TOPIC
from testbed.messages.servers import nats_server
from testbed.programs import environment, program

PROCESSOR, RATE = ("processor time of a message", "us"), ("messages a second and core", "")
RATIO = ("of drld's processor time", "")
P50, P99 = ("added median delay", "us"), ("added p99", "us")
DIRECT, NAIVE, HAPROXY = "direct", "trio proxy", "haproxy, TCP mode"
READ, STAMPS = "drld, reading time", "drld, stamps"
GOALS = {1: 20_000.0, 10: 40_000.0}
"""Messages a second and core, by those that are sent at once."""
PACED = 3_000
"""Messages/s of the load under which delays are measured."""
_BROKER = 2000
_PORTS = {DIRECT: _BROKER, NAIVE: 2001, HAPROXY: 2002, READ: 2003, STAMPS: 2004}
_PATIENCE_S = 60.0
_HAPROXY = """
global
    nbthread 1
defaults
    mode tcp
    timeout connect 60s
    timeout client 60s
    timeout server 60s
listen broker
    bind 127.0.0.1:{port}
    server broker 127.0.0.1:{broker}
"""


class _Hop(NamedTuple):
    name: str
    process: subprocess.Popen[bytes] | None
    publishers: Publishers

    def processor_s(self) -> float:
        """Processor time of all its threads, with that of the kernel for it."""
        if self.process is None:
            return 0.0
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_bytes().split()[0]) for task in tasks) / NS_PER_S


async def measure(setting: Setting) -> Outcome:
    """All contestants in turn."""
    rounds = setting.choose(15, 3)
    flood, paced = setting.choose(20_000, 5_000), setting.choose(6_000, 2_000)
    times: dict[tuple[str, int], list[float]] = {}
    delays: dict[tuple[str, float], list[float]] = {}
    paced_times: dict[str, list[float]] = {}
    with ExitStack() as stack:
        hops = _hops(setting, stack)
        for number in range(rounds + 1):
            setting.progress.step(f"round {number} of {rounds}")
            for hop in hops if number % 2 == 0 else reversed(hops):
                for batch in GOALS:
                    before = hop.processor_s()
                    hop.publishers.send(flood, batch)
                    taken = hop.processor_s() - before
                    # The first round warms up.
                    if number:
                        times.setdefault((hop.name, batch), []).append(1e6 * taken / flood)
                before = hop.processor_s()
                found = hop.publishers.pace(paced, PACED)
                taken = hop.processor_s() - before
                if number:
                    paced_times.setdefault(hop.name, []).append(1e6 * taken / paced)
                    for part in (0.5, 0.99):
                        delays.setdefault((hop.name, part), []).append(quantile(found, part))
    rows = []
    for batch, goal in GOALS.items():
        group = "single messages" if batch == 1 else f"batches of {batch}"
        rows += costs(group, {name: times[name, batch] for name in _PORTS}, goal)
    rows += costs(f"{PACED:,}/s, single", paced_times, None)
    for name in list(_PORTS)[1:]:
        for part, metric in ((0.5, P50), (0.99, P99)):
            pairs = zip(delays[name, part], delays[DIRECT, part], strict=True)
            rows.append(
                Row(f"{PACED:,}/s, single", name, *metric, [it - than for it, than in pairs])
            )
    direct = [sorted(delays[DIRECT, part])[rounds // 2] for part in (0.5, 0.99)]
    notes = [
        f"{CONNECTIONS} connections; payloads of {SIZE} bytes; one limit, which never binds",
        f"direct: median {direct[0]:.0f} us, p99 {direct[1]:.0f} us from the scheduled time",
    ]
    return Outcome(rows, RATE[0], notes)


def costs(group: str, times: dict[str, list[float]], goal: float | None) -> list[Row]:
    """Processor time, and what follows from it, of each contestant that is a process."""
    rows = []
    for name, its in times.items():
        if name == DIRECT:
            continue
        rows.append(Row(group, name, *PROCESSOR, its))
        rates = [1e6 / it for it in its]
        rows.append(Row(group, name, *RATE, rates, at_least=goal if name == STAMPS else None))
        if name != STAMPS:
            ratios = [it / ours for it, ours in zip(its, times[STAMPS], strict=True)]
            rows.append(Row(group, name, *RATIO, ratios))
    return rows


def _hops(setting: Setting, stack: ExitStack) -> list[_Hop]:
    """All contestants before one broker, in a namespace."""
    name = netns.namespace("hop")
    netns.run(["ip", "netns", "add", name])
    stack.enter_context(netns.entered(name))
    netns.run(["ip", "link", "set", "lo", "up"])
    stack.enter_context(nats_server(setting.state, _BROKER))
    broker = stack.enter_context(contextlib.closing(Publishers(_BROKER, _BROKER)))
    return [
        _Hop(DIRECT, None, broker),
        *(stack.enter_context(_hop(setting, name)) for name in list(_PORTS)[1:]),
    ]


@contextmanager
def _hop(setting: Setting, name: str) -> Iterator[_Hop]:
    command, variables = _command(setting.state, name)
    log = setting.state / f"{_PORTS[name]}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(setting.cpus[1]), *command],
            stdout=output, stderr=output, env=variables,
        )  # fmt: skip
    try:
        publishers = _connected(name, process, log)
        yield _Hop(name, process, publishers)
        publishers.close()
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _command(state: Path, name: str) -> tuple[Sequence[str], dict[str, str] | None]:
    """The command of a contestant, and its environment if it needs one."""
    port = _PORTS[name]
    if name == NAIVE:
        module = "testbed.bench.hop.naive"
        return [sys.executable, "-m", module, str(port), str(_BROKER)], None
    if name == HAPROXY:
        file = state / "haproxy.cfg"
        file.write_text(_HAPROXY.format(port=port, broker=_BROKER))
        return [program("haproxy"), "-f", str(file)], dict(environment("haproxy"))
    file = state / f"{port}.toml"
    file.write_text(toml({
        "limiter": {"name": f"hop{port}", "listen": f"127.0.0.1:{port + 100}",
                    "control": f"{state}/{port}.sock"},
        "broker": [{"name": "nats", "protocol": PROTOCOL, "listen": f"127.0.0.1:{port}",
                    "server": f"127.0.0.1:{_BROKER}",
                    "timestamps": "read" if name == READ else "socket"}],
        "limit": [{"id": 1, "name": "topic", "rate": "10M/s", "burst": "1Mmsg",
                   "allocator": "static", "match": {"broker": "nats", "topic": TOPIC[PROTOCOL]}}],
    }))  # fmt: skip
    return [sys.executable, "-m", "drld", "--config", str(file)], None


def _connected(name: str, process: subprocess.Popen[bytes], log: Path) -> Publishers:
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            return Publishers(_PORTS[name], _BROKER)
        time.sleep(0.05)
    raise MeasurementError(f"{name} does not listen: {log.read_text(errors='replace')[-1000:]}")
