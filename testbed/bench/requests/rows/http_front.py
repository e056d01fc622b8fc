"""A daemon of drld, asked over HTTP."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.exchange import exchange
from testbed.bench.requests.limiter import limiter
from testbed.bench.requests.load import Asked


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
    """Each question is a request of HTTP; its answer is read before the next is sent."""
    with limiter(scene, "http") as path:

        def decide(asked: Sequence[Asked]) -> Result:
            questions = [_question(it) for it in asked]
            # Between slices a connection would be idle for too long.
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(path)
                return exchange(sock, questions, _complete, lambda answer: b" 429 " in answer[:16])

        yield decide


ENTRY = Entry(
    "one at a time", "drld, HTTP", contestant, place=1,
    note="one daemon, unix socket, one connection; limits without a key, keys are not told apart",
)  # fmt: skip
