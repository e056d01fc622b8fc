"""Single questions at half the rate that the daemon can answer, each at a time of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from drld.client.protocol.check_codec import check_frames, record_of, text_of
from testbed.bench.requests import open_loop
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.limiter import limiter, question
from testbed.bench.requests.load import Asked

PART = 4
"""One of this number of a slice's questions is asked without a pause, to find the full load."""


def _frame(it: Asked) -> bytes:
    asked = question(it)
    text = text_of(asked)
    return check_frames([(record_of(0, asked, text), text)])


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A client without the library, which takes more time than the daemon."""
    rng = Random("half load")
    with limiter(scene, "half") as path:

        def decide(asked: Sequence[Asked]) -> Result:
            frames = [_frame(it) for it in asked]
            first = len(frames) // PART
            with open_loop.connections(path) as opened:
                full = open_loop.ask(opened, frames[:first], None)
                per_s = first / full.seconds / 2
                due_s = open_loop.arrivals(rng, len(frames) - first, per_s)
                half = open_loop.ask(opened, frames[first:], due_s)
            seconds = sum(half.latencies) * len(frames) / len(half.latencies)
            return Result(seconds, full.refused + half.refused, half.latencies, per_s)

        yield decide


ENTRY = Entry(
    "at half load", "drld, single questions", contestant, place=0, p99_below=1_000.0,
    note=f"one daemon, unix socket, {open_loop.CONNECTIONS} connections, limits without a key; "
    "Poisson arrivals at half the rate that the same connections reach without a pause; a time is "
    "from the question's own time to its answer", requests=(8_000, 1_200),
)  # fmt: skip
