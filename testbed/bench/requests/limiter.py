"""A daemon of drld for the contestants that ask one."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from drld.client import Client, Question
from testbed.bench.requests.contest import Scene
from testbed.bench.requests.load import Asked
from testbed.bench.requests.servers import server

PATIENCE_S = 30.0
"""The longest wait for an answer: a client that falls back to its own decisions would win."""
_CONFIG = """
[limiter]
name = "{name}"
listen = "127.0.0.1:{port}"
control = "{control}"
[requests]
listen = "{path}"
[[limit]]
id = 1
name = "all"
unit = "requests"
rate = "1000000/s"
burst = 1000000
match = {{ namespace = "bench" }}
[[limit]]
id = 2
name = "emptied"
unit = "requests"
rate = "9/d"
burst = 1
match = {{ namespace = "bench", where = {{ emptied = "yes" }} }}
"""


@contextmanager
def limiter(scene: Scene, name: str) -> Iterator[str]:
    """The path of its socket: one daemon without peers, limits without a key."""
    path = scene.state / f"{name}.sock"
    file = scene.state / f"{name}.toml"
    control = scene.state / f"{name}-control.sock"
    # A host has no two limiters of a name.
    named = f"bench-{name}-{os.getpid()}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    file.write_text(_CONFIG.format(name=named, port=port, control=control, path=path))
    with server([sys.executable, "-m", "drld", "--config", str(file)], path, scene.cpu):
        with Client(str(path), timeout_s=PATIENCE_S) as client:
            # Those to be refused fall under a second limit, which is used up.
            client.check("bench", {"emptied": "yes"})
        yield str(path)


def question(it: Asked) -> Question:
    """What a client asks about a request."""
    pairs = {"user": it.user, "emptied": "yes"} if it.emptied else {"user": it.user}
    return Question("bench", pairs, it.cost)
