"""One bucket of each key, which is not replicated."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from drld.requests.buckets.gcra import Gcra
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.hashed import hashed
from testbed.bench.requests.load import DEBT, EMPTIED, POLICY, Asked


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """A dictionary of buckets."""
    buckets = {hashed(Asked(key, 1).user): Gcra(POLICY) for key in range(scene.keys)}
    for key in range(scene.keys):
        cost = DEBT if key < EMPTIED else 1
        buckets[hashed(Asked(key, 1).user)].charge(time.monotonic_ns(), cost)

    def decide(asked: Sequence[Asked]) -> Result:
        prepared = [(it.user, it.cost) for it in asked]
        refused, clock = 0, time.monotonic_ns
        began = time.perf_counter()
        for user, cost in prepared:
            if not buckets[hashed(user)].take(clock(), cost).admitted:
                refused += 1
        return Result(time.perf_counter() - began, refused)

    yield decide


ENTRY = Entry(
    "pure", "one bucket", contestant, place=0, below=1.5,
    note="no gossip; key hashed, clock read", requests=(50_000, 5_000),
)  # fmt: skip
