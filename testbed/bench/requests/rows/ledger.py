"""The ledger of one of 30 limiters; every tenth key has cells of the 29 others."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from drld.model import NS_PER_S
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.ledger_shape import MS
from drld.requests.buckets.replica import Message, Replica
from drld.requests.buckets.urgency import Slack
from testbed.bench.requests.contest import Entry, Result, Scene, Slice
from testbed.bench.requests.hashed import hashed
from testbed.bench.requests.load import DEBT, EMPTIED, POLICY, Asked

LIMITERS = 30
INTERVAL_NS = 300 * MS
MARGIN_NS = LIMITERS * INTERVAL_NS
LIVE = 10
"""Every tenth key has cells of all limiters."""


def replica(keys: int) -> Replica:
    """A replica with a bucket for each key; those without a request are at rest."""
    made = Replica(
        lambda _key: Ledger(POLICY, 1, INTERVAL_NS, MARGIN_NS),
        [f"l{number}" for number in range(1, LIMITERS)],
        slack=Slack(MARGIN_NS), deferred=True, max_keys=2 * keys,
    )  # fmt: skip
    now_ns = time.monotonic_ns()
    # When the own cells of now are closed.
    later_ns = now_ns + 10 * NS_PER_S
    others = tuple(Cell(origin, 1, 1, 10 * origin) for origin in range(2, LIMITERS + 1))
    for key in range(keys):
        name = hashed(Asked(key, 1).user)
        made.charge(name, now_ns, DEBT if key < EMPTIED else 1)
        if key % LIVE == 0:
            made.receive("l1", Message(0, {name: others}), now_ns)
        made.sweep(later_ns, 2)
        if key % 1000 == 0:
            made.urgent(now_ns)
    made.urgent(now_ns)
    for _ in range(2):
        made.sweep(later_ns, keys)
    return made


@contextmanager
def contestant(scene: Scene) -> Iterator[Slice]:
    """Decisions and charges; what is to be gossiped is noted, and sent outside of the time."""
    made = replica(scene.keys)

    def decide(asked: Sequence[Asked]) -> Result:
        prepared = [(it.user, it.cost) for it in asked]
        refused, clock, take = 0, time.monotonic_ns, made.take
        began = time.perf_counter()
        for user, cost in prepared:
            if not take(hashed(user), clock(), cost)[0].admitted:
                refused += 1
        seconds = time.perf_counter() - began
        made.urgent(time.monotonic_ns())
        made.sweep(time.monotonic_ns(), 2 * len(asked))
        return Result(seconds, refused)

    yield decide


ENTRY = Entry(
    "pure", "ledger, 30 origins", contestant, place=1, below=3.0,
    note="every tenth key has cells of 29 others; most keys are at rest; slack is asked, and "
    "messages are made outside of the time; key hashed, clock read", requests=(50_000, 5_000),
)  # fmt: skip
