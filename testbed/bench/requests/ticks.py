"""Whether ticks keep their time while a daemon has more requests than it can answer.

One daemon polices packets on the kernel datapath, at 50 ms, and answers requests. It has one
processor, and its clients have another. Windows without requests, with batches and with Envoy's
calls take turns. Packets keep all limits on packets active.

A tick is late if it begins more than half a gossip interval after it was due
(`drld.daemon.ticker`). A daemon without time skips ticks. So the figure is the ticks of a window
that were run and not late, over those that the window before had without requests.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import trio

from testbed.bench.contestants import configured, prefixes
from testbed.bench.lanes import Field, Lane, Place, Setting, wired
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import SMALLEST_FRAME, Blast, pinned
from testbed.crew import Child
from testbed.daemon import Daemon
from testbed.errors import MeasurementError

KEPT, LATE = ("ticks in time, of those without requests", ""), ("late ticks", "%")
CORE, RATE = ("processor of the daemon", "% of a core"), ("decisions a second", "")
GOAL = 0.99
LIMITS = 100
"""Limits on packets, all active."""
_PACKETS_PER_S = 25 * LIMITS
_PORT = 8099
"""The port of requests: the daemon has a namespace of its own."""
_SETTLE_S = 2.0
_LOADS = {"no requests": "", "batches": "batches", "Envoy's calls": "calls"}
"""The kind of the client's questions, by case; empty: it is silent."""


class Window(NamedTuple):
    """The findings of a window, per second."""

    run: float
    late: float
    core: float
    decided: float


async def measure(setting: Setting) -> Outcome:
    """Windows of all loads in turn."""
    lane = Lane(1, "lane1")
    rounds, window_s = setting.choose(15, 2), setting.choose(4, 1)
    seen: dict[str, list[Window]] = {case: [] for case in _LOADS}
    async with wired(setting, [lane]) as members:
        place = Place(setting, members, lane)
        daemon, client = await _start(place)
        field = Field(setting, members, [lane], [])
        async with trio.open_nursery() as nursery:
            seconds = _SETTLE_S + (rounds + 1) * len(_LOADS) * (window_s + 1)
            blast = Blast(
                field, SMALLEST_FRAME, seconds, rate=_PACKETS_PER_S, addresses=LIMITS
            )  # fmt: skip
            nursery.start_soon(blast.measure, lane)
            await trio.sleep(_SETTLE_S)
            for number in range(rounds + 1):
                setting.progress.step(f"round {number} of {rounds}")
                for case, kind in _LOADS.items():
                    window = await _window(daemon, client, kind, window_s)
                    # The first round warms up.
                    if number:
                        seen[case].append(window)
            limits = await daemon.ask("/v1/limits")
            nursery.cancel_scope.cancel()
    reached = sum(it["arrived_packets"] > 0 for it in limits if it["unit"] == "bytes")
    if reached != LIMITS:
        raise MeasurementError(f"packets reached {reached} limits, not {LIMITS}")
    idle = next(iter(seen.values()))
    rows = [row for case, its in seen.items() for row in rows_of(case, its, idle)]
    note = f"{LIMITS} active limits on packets; the daemon and its clients have a processor each"
    return Outcome(rows, KEPT[0], [note])


def rows_of(case: str, its: Sequence[Window], idle: Sequence[Window]) -> list[Row]:
    """Return the figures of a case, whose windows each follow one of `idle`."""
    row = partial(Row, "packet ticks", case)
    rows = [
        row(*LATE, [100 * it.late / it.run for it in its]),
        row(*CORE, [100 * it.core for it in its]),
    ]
    if its is idle:
        return rows
    kept = [(it.run - it.late) / alone.run for it, alone in zip(its, idle, strict=True)]
    return [row(*KEPT, kept, at_least=GOAL), *rows, row(*RATE, [it.decided for it in its])]


async def _start(place: Place) -> tuple[Daemon, Child]:
    """Return a ready daemon, and the client that asks it."""
    setting, lane = place.setting, place.lane
    path = str(setting.state / "ticks.sock")
    every = {"namespace": "bench"}
    requests: list[dict[str, Any]] = [
        {"id": 1_001, "name": "all", "match": every},
        {"id": 1_002, "name": "per-user", "match": {**every, "per": ["user"]}},
    ]
    endless = {"unit": "requests", "rate": "10000000/s", "burst": 1_000_000}
    daemon = configured(
        place, "kernel", [*prefixes(LIMITS)(lane), *({**it, **endless} for it in requests)],
        {"requests": {"listen": [path, f"127.0.0.1:{_PORT}"]}},
    )  # fmt: skip
    daemon.launch(place.members)
    os.sched_setaffinity(daemon.pid, {setting.cpus[1]})
    await daemon.ready()
    command = [*pinned(setting.cpus[0]), sys.executable, "-m", "testbed.bench.requests.hammer"]
    client = place.members.start("requests", lane.namespace, command)
    await client.send({"path": path, "port": _PORT})
    await client.receive()
    return daemon, client


async def _window(daemon: Daemon, client: Child, kind: str, seconds: float) -> Window:
    before, clock = (await daemon.ask("/v1/status"))["ticks"], daemon.clock()
    decided = 0.0
    if kind:
        await client.send({"kind": kind, "seconds": seconds})
        decided = (await client.receive(60.0 + seconds))["per_s"]
    else:
        await trio.sleep(seconds)
    after, cost = (await daemon.ask("/v1/status"))["ticks"], daemon.cost(clock)
    elapsed_s = daemon.clock()[0] - clock[0]
    run, late = (after[name] - before[name] for name in ("run", "late"))
    return Window(run / elapsed_s, late / elapsed_s, cost["core_share"], decided)
