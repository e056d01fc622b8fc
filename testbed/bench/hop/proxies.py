"""A broker of NATS in a namespace, and proxies before it, each with publishers of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from drld.config.toml_text import toml
from drld.model import NS_PER_S
from testbed import netns
from testbed.bench.hop.client import PROTOCOL, Publishers
from testbed.bench.lanes import Setting
from testbed.messages.servers import nats_server
from testbed.server_process import ServerProcess

BROKER = 2000
"""The port of the broker."""


class Hop(NamedTuple):
    """A contestant, and the publishers that send through it."""

    name: str
    process: ServerProcess | None
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
    pinned, log = ["taskset", "-c", str(setting.cpus[1]), *command], setting.state / f"{port}.log"
    process = ServerProcess(name, pinned, log, environment=variables)
    with process.serving(partial(Publishers, port, BROKER)) as publishers, closing(publishers):
        yield Hop(name, process, publishers)


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
