"""What a key takes in a ledger of 30 limiters: resident bytes of a process of its own.

Each key has been charged once. A tenth is live: its row is not at rest, has a cell of each of the
29 other limiters, and was charged again, which is not told yet.
"""

from __future__ import annotations

import gc
import json
import sys
from functools import partial
from random import Random

import trio

from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.ledger_shape import MS
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.replica import Message, Replica
from drld.requests.buckets.urgency import Slack
from drld.requests.keyed_limit import ENTRIES
from drld.requests.keyed_limits import MOST_SWEPT
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome, Row

LIMITERS = 30
INTERVAL_NS = 300 * MS
POLICY = Policy(capacity=1000, rate=1)
LIVE = 10
"""Every tenth key is live."""
GOAL_MB, GOAL_KEY, GOAL_CELL = 300, 140, 12
RESIDENT, KEY, CELL = ("resident", "MB"), ("a key at rest", "bytes"), ("a live cell", "bytes")
_TURNS = 300
"""Gossip intervals in which the keys come: so a tenth of them is live at a time."""
_START_NS = 10**15
"""A host that is up for eleven days."""


def _resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 -- no file of ours
        return int(file.read().split()[1]) * 4096


def work(keys: int) -> dict[str, float]:
    """Fill a table, and weigh it when all rows are at rest, and when a tenth is live."""
    margin_ns = LIMITERS * INTERVAL_NS
    replica = Replica(
        lambda _key: Ledger(POLICY, 1, INTERVAL_NS, margin_ns), ["l1"],
        slack=Slack(margin_ns), deferred=True, max_keys=keys, most=ENTRIES,
    )  # fmt: skip
    rng, rounds, now_ns = Random(1), Random(2), _START_NS
    before = _resident_bytes()
    for number in range(keys):
        replica.charge(rng.getrandbits(64), now_ns, 1 + number % 5)
        replica.sweep(now_ns, 3)
        if number % (keys // _TURNS) == 0:
            now_ns += INTERVAL_NS
            replica.urgent(now_ns)
            replica.round(now_ns, rounds)
    now_ns += margin_ns
    replica.round(now_ns, rounds)
    # As a daemon sweeps, some rows a round.
    for _ in range(2 * keys // MOST_SWEPT):
        replica.sweep(now_ns, MOST_SWEPT)
    at_rest = _resident_bytes()
    rng = Random(1)
    for number in range(keys):
        key = rng.getrandbits(64)
        if number % LIVE:
            continue
        slot = now_ns // INTERVAL_NS % 2**16
        cells = tuple(Cell(origin, slot, 1, 20 * origin) for origin in range(2, LIMITERS + 1))
        replica.receive("l1", Message(0, {key: cells}), now_ns)
        replica.charge(key, now_ns, 1)
        replica.sweep(now_ns, 3)
        if number % (keys // LIMITERS) < LIVE:
            now_ns += INTERVAL_NS
    live = _resident_bytes()
    return {
        "rows": len(replica.buckets), "before": before, "at_rest": at_rest, "live": live,
        "cells": -(-keys // LIVE) * LIMITERS,
    }  # fmt: skip


async def measure(setting: Setting) -> Outcome:
    """Weigh it in another process."""
    keys = setting.choose(1_000_000, 50_000)
    setting.progress.step(f"{keys:,} keys")
    command = [sys.executable, "-m", "testbed.bench.requests.memory", str(keys)]
    done = await trio.run_process(command, capture_stdout=True)
    found = json.loads(done.stdout)
    assert found["rows"] == keys
    named = "ledger, 30 limiters", f"{keys:,} keys"
    row = partial(Row, *named)
    return Outcome(
        [
            row(*RESIDENT, [(found["live"] - found["before"]) / 1e6], below=GOAL_MB * keys / 1e6),
            row(*KEY, [(found["at_rest"] - found["before"]) / keys], below=GOAL_KEY),
            row(*CELL, [(found["live"] - found["at_rest"]) / found["cells"]], below=GOAL_CELL),
        ],
        RESIDENT[0],
        [
            "the interpreter is left out; a tenth of the keys is live, with a cell of each limiter;"
            " bytes of a live cell are what those keys take more than at rest, by their cells"
        ],
    )


if __name__ == "__main__":
    print(json.dumps(work(int(sys.argv[1]))))
