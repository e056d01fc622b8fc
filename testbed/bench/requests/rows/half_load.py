"""Single questions at half the rate that the daemon can answer, each at a time of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from testbed.bench.requests import open_loop
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.limiter import limiter
from testbed.bench.requests.load import Asked
from testbed.bench.requests.servers import server

PART = 4
"""One of this number of a slice's questions is asked without a pause, to find the full load."""


@contextmanager
def _bare(scene: Scene) -> Iterator[str]:
    """The path of a bare server's socket."""
    path = scene.state / "bare.sock"
    command = [sys.executable, "-m", "testbed.bench.requests.bare_server", str(path)]
    with server(command, path, scene.cpu):
        yield str(path)


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A client without the library, which takes more time than the daemon."""
    rng = Random("half load")
    with limiter(scene, "half") as path, _bare(scene) as bare:

        def decide(asked: Sequence[Asked]) -> Result:
            frames = [open_loop.frame_of(it) for it in asked]
            first = len(frames) // PART
            with open_loop.connections(path) as opened:
                full = open_loop.ask(opened, frames[:first], None)
                per_s = first / full.seconds / 2
                due_s = open_loop.arrivals(rng, len(frames) - first, per_s)
                half = open_loop.ask(opened, frames[first:], due_s)
            with open_loop.connections(bare) as opened:
                control = open_loop.ask(opened, frames[first:], due_s).latencies
            seconds = sum(half.latencies) * len(frames) / len(half.latencies)
            refused = full.refused + half.refused
            return Result(seconds, refused, half.latencies, per_s, control)

        yield decide


ENTRY = Entry(
    "at half load", "drld, single questions", contestant, place=0, p99_below=1_000.0,
    note=f"one daemon, unix socket, {open_loop.CONNECTIONS} connections, limits without a key; "
    "Poisson arrivals at half the rate that the same connections reach without a pause; a time is "
    "from the question's own time to its answer; the bare server gets the same questions at the "
    "same times, and admits each at once", requests=(8_000, 1_200),
)  # fmt: skip
