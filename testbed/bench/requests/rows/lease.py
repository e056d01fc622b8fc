"""One process that holds a lease for a hot key, and decides by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from drld.client import Client
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.limiter import PATIENCE_S, limiter
from testbed.bench.requests.load import Asked
from testbed.errors import MeasurementError


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A client in this process; the daemon has a processor of its own."""
    with limiter(scene, "lease") as path, Client(path, timeout_s=PATIENCE_S) as client:
        take = client.lease("bench", {"user": "hot"}).take

        def decide(asked: Sequence[Asked]) -> Result:
            refused = 0
            began = time.perf_counter()
            for _ in asked:
                if not take():
                    refused += 1
            seconds = time.perf_counter() - began
            if client.counts["degraded"]:
                raise MeasurementError("the limiter did not answer")
            return Result(seconds, refused)

        yield decide


ENTRY = Entry(
    "leased alone", "drld, one process", contestant, place=0, below=2.0,
    note="one hot key, a limit of 1,000,000/s; questions to the daemon are in the time",
    requests=(50_000, 5_000),
)  # fmt: skip
