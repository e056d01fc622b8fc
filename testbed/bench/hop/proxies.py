"""A broker of NATS in a namespace, and proxies before it, each with publishers of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from drld.config.toml_text import toml
from drld.model import NS_PER_S
from testbed import netns
from testbed.bench.hop.client import PROTOCOL, Publishers
from testbed.bench.lanes import Setting
from testbed.errors import MeasurementError
from testbed.messages.servers import nats_server

BROKER = 2000
"""The port of the broker."""
_PATIENCE_S = 60.0


class Hop(NamedTuple):
    """A contestant, and the publishers that send through it."""

    name: str
    process: subprocess.Popen[bytes] | None
    """None: nothing is between publishers and broker."""
    publishers: Publishers

    def processor_s(self) -> float:
        """Processor time of all threads of the process, with that of the kernel for it."""
        if self.process is None:
            return 0.0
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_bytes().split()[0]) for task in tasks) / NS_PER_S


@contextmanager
def broker(setting: Setting) -> Iterator[None]:
    """A nats-server at `BROKER` in a namespace, which the caller enters."""
    name = netns.namespace("hop")
    netns.run(["ip", "netns", "add", name])
    with netns.entered(name):
        netns.run(["ip", "link", "set", "lo", "up"])
        with nats_server(setting.state, BROKER):
            yield


@contextmanager
def hop(
    setting: Setting,
    name: str,
    port: int,
    command: Sequence[str],
    variables: Mapping[str, str] | None = None,
) -> Iterator[Hop]:
    """A contestant that listens on a port, on the second processor.

    Raises:
        MeasurementError: it does not listen.
    """
    log = setting.state / f"{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(setting.cpus[1]), *command],
            stdout=output, stderr=output, env=variables,
        )  # fmt: skip
    try:
        publishers = _connected(name, port, process, log)
        yield Hop(name, process, publishers)
        publishers.close()
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def drld(state: Path, port: int, topics: Sequence[str], timestamps: str) -> Sequence[str]:
    """The command of a drld with a limit on each of these topics, which never binds."""
    file = state / f"{port}.toml"
    file.write_text(toml({
        "limiter": {"name": f"hop{port}", "listen": f"127.0.0.1:{port + 100}",
                    "control": f"{state}/{port}.sock"},
        "broker": [{"name": "nats", "protocol": PROTOCOL, "listen": f"127.0.0.1:{port}",
                    "server": f"127.0.0.1:{BROKER}", "timestamps": timestamps}],
        "limit": [{"id": number, "name": f"topic{number}", "rate": "10M/s", "burst": "1Mmsg",
                   "allocator": "static", "match": {"broker": "nats", "topic": topic}}
                  for number, topic in enumerate(topics, 1)],
    }))  # fmt: skip
    return [sys.executable, "-m", "drld", "--config", str(file)]


def _connected(name: str, port: int, process: subprocess.Popen[bytes], log: Path) -> Publishers:
    deadline = time.monotonic() + _PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            return Publishers(port, BROKER)
        time.sleep(0.05)
    raise MeasurementError(f"{name} does not listen: {log.read_text(errors='replace')[-1000:]}")
