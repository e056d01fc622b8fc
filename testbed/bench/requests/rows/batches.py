"""The client library, which asks in batches."""

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
    """A client in this process, on one connection; parts of 1,024 follow each other."""
    with limiter(scene, "batches") as path, Client(path, timeout_s=PATIENCE_S) as client:

        def decide(asked: Sequence[Asked]) -> Result:
            questions = [question(it) for it in asked]
            began = time.perf_counter()
            answers = client.ask(questions)
            seconds = time.perf_counter() - began
            if any(answer.degraded for answer in answers):
                raise MeasurementError("the limiter did not answer")
            return Result(seconds, sum(not answer.admitted for answer in answers))

        yield decide


ENTRY = Entry(
    "in batches", "drld, client library", contestant, place=0, below=4.0,
    note="20,000 questions a call, answers read; one daemon, unix socket; limits without a key",
    requests=(20_000, 2_000),
)  # fmt: skip
