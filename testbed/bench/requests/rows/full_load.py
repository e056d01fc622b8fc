"""Single questions over several connections, which ask again as soon as they have an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from testbed.bench.requests import open_loop
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.limiter import limiter
from testbed.bench.requests.load import Asked


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A client without the library, which takes more time than the daemon."""
    with limiter(scene, "full") as path:

        def decide(asked: Sequence[Asked]) -> Result:
            frames = [open_loop.frame_of(it) for it in asked]
            with open_loop.connections(path) as opened:
                return open_loop.ask(opened, frames, None)

        yield decide


ENTRY = Entry(
    "at full load", f"drld, {open_loop.CONNECTIONS} connections", contestant, place=0, below=66.7,
    note="one daemon, unix socket, limits without a key; each connection asks its next question as "
    "soon as it has an answer; 66.7 us are 15,000 questions a second",
    requests=(8_000, 1_200),
)  # fmt: skip
