"""A daemon of drld, asked over HTTP."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.exchange import exchange
from testbed.bench.requests.load import Asked
from testbed.bench.requests.servers import server

_CONFIG = """
[limiter]
name = "bench"
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


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _question(it: Asked) -> bytes:
    descriptor = {"user": it.user, **({"emptied": "yes"} if it.emptied else {})}
    body = json.dumps({"namespace": "bench", "descriptor": descriptor, "cost": it.cost}).encode()
    return (
        b"POST /v1/check HTTP/1.1\r\nhost: drld\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (len(body), body)
    )


def _complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = re.search(rb"content-length: (\d+)", head.lower())
    return length is not None and len(body) >= int(length[1])


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A daemon without peers; those to be refused fall under a second limit, which is used up."""
    path = scene.state / "front.sock"
    file = scene.state / "front.toml"
    control = scene.state / "front-control.sock"
    file.write_text(_CONFIG.format(port=_free_port(), control=control, path=path))
    with server([sys.executable, "-m", "drld", "--config", str(file)], path,
                scene.cpu) as connect:  # fmt: skip

        def decide(asked: Sequence[Asked]) -> Result:
            questions = [_question(it) for it in asked]
            # Between slices a connection would be idle for too long.
            with connect() as sock:
                return exchange(sock, questions, _complete, lambda answer: b" 429 " in answer[:16])

        yield decide


ENTRY = Entry(
    "one at a time", "drld, HTTP", contestant, 1,
    note="one daemon, unix socket, one connection; limits without a key, keys are not told apart",
)  # fmt: skip
