"""The client library, which asks one question after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from drld.client import Client
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.limiter import PATIENCE_S, limiter, question
from testbed.bench.requests.load import Asked
from testbed.errors import MeasurementError


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A client in this process, on one connection."""
    with limiter(scene, "singly") as path, Client(path, timeout_s=PATIENCE_S) as client:

        def decide(asked: Sequence[Asked]) -> Result:
            questions = [question(it) for it in asked]
            latencies, refused = [], 0
            clock, ask = time.perf_counter, client.ask
            began = clock()
            for one in questions:
                sent = clock()
                (answer,) = ask([one])
                latencies.append(clock() - sent)
                refused += not answer.admitted
            seconds = clock() - began
            if client.counts["degraded"]:
                raise MeasurementError("the limiter did not answer")
            return Result(seconds, refused, latencies)

        yield decide


ENTRY = Entry(
    "one at a time", "drld, client library", contestant, place=3,
    note="one daemon, unix socket, one connection; limits without a key",
)  # fmt: skip
