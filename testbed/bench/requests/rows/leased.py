"""Processes that hold leases for one hot key each, and decide by themselves."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

from drld.client import Client
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.limiter import PATIENCE_S, limiter
from testbed.bench.requests.load import Asked
from testbed.errors import MeasurementError

PROCESSES = 100
REPEATED = 50
"""A slice asks each request so often: in less time, all would be the cost of waking a process."""


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """All run at a time, on all processors; the requests of a slice are divided among them."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(PROCESSES)]
    with limiter(scene, "leased") as path:
        # Pinned to no processor: the daemon has one, and gives half of it away.
        workers = [context.Process(target=_work, args=(path, its)) for _, its in pipes]
        for worker in workers:
            worker.start()
        ours = [our for our, _ in pipes]
        for our in ours:
            our.recv()

        def decide(asked: Sequence[Asked]) -> Result:
            part = len(asked) * REPEATED // PROCESSES
            began = time.perf_counter()
            for our in ours:
                our.send(part)
            refused = sum(our.recv() for our in ours)
            seconds = time.perf_counter() - began
            if refused < 0:
                raise MeasurementError("the limiter did not answer")
            return Result(seconds / REPEATED, refused // REPEATED)

        yield decide
        for our in ours:
            our.send(0)
        for worker in workers:
            worker.join()


def _work(path: str, pipe: Connection) -> None:
    """Decide as often as is said, and say how many are refused."""
    client = Client(path, timeout_s=PATIENCE_S)
    lease = client.lease("bench", {"user": "hot"})
    lease.take()
    pipe.send(0)
    while part := pipe.recv():
        take, refused = lease.take, 0
        for _ in range(part):
            if not take():
                refused += 1
        pipe.send(-(2**40) if client.counts["degraded"] else refused)


ENTRY = Entry(
    "leased", f"drld, {PROCESSES} processes", contestant, place=0, below=1.67,
    note="one hot key, a limit of 1,000,000/s; a slice's time is that of all processes together",
)  # fmt: skip
