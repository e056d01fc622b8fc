"""The cost of a daemon: processor time by limits and by peers, and memory.

A real daemon on the kernel datapath, at 50 ms, measured by the kernel's account of its process for
over ten seconds. Each limit has one address, and packets keep the active limits active in each
tick. Two peers gossip with the daemon, in a mesh. By peers: one active limit, with either fabric.
The peers are stand-ins that answer each update with one (`testbed.bench.echo`).

The number of updates sent shows the number of ticks: each tick sends one for every active limit to
each peer of the round. A daemon with too little processor time has fewer ticks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from testbed.bench.contestants import configured, prefixes
from testbed.bench.echo import PORT
from testbed.bench.lanes import Field, Lane, Place, Setting, wired
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import SMALLEST_FRAME, Blast
from testbed.daemon import Daemon
from testbed.errors import MeasurementError

CORE, TICK = ("processor", "% of a core"), ("processor time of a tick", "ms")
KEPT, MEMORY = ("ticks kept", ""), ("resident", "MB")
"""Ticks over ticks due; a daemon with too little processor time has fewer."""
INTERVAL_S = 0.05
BRANCHING = 3
_HOST = "127.0.0.1"
_PACKETS_PER_S = 25
"""Packets of an active limit: one or more in each tick."""
_LEAST_RATE = 100
_SETTLE_S = 2.0
_SOME = 100
_COUNTS = (1, 10, 100, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class _Case:
    group: str
    limits: int
    active: int
    peers: int = 2
    fabric: str = "mesh"
    below: float | None = None
    """The goal, in per cent of a core."""
    by_peers: bool = False
    flows: int = 0
    """Flows of each active limit; 0: a few."""

    @property
    def updates_a_tick(self) -> int:
        """Updates per round: one for each active limit, or a heartbeat, to each peer of the
        round."""
        told = self.peers if self.fabric == "mesh" else min(self.peers, BRANCHING)
        return told * max(self.active, 1)

    @property
    def x(self) -> int:
        return self.peers if self.by_peers else self.flows or self.limits

    @property
    def packets_per_s(self) -> int:
        """Each flow sends once a second or more: after three seconds of silence it is evicted."""
        return max(self.active * max(_PACKETS_PER_S, self.flows), _LEAST_RATE)


def _cases(quick: bool) -> Iterable[_Case]:
    below = {1_000: 40.0, 10_000: 60.0}
    counts = (1_000,) if quick else _COUNTS
    for count in (1_000, 10_000) if quick else _COUNTS[2:]:
        yield _Case(f"limits, {_SOME} active", count, _SOME, below=below.get(count))
    yield from (_Case("limits, all idle", count, 0) for count in counts)
    yield from (_Case("limits, all active", count, count) for count in counts)
    for flows, goal in ((4, 70.0), (64, None)):
        group = "flows of each of 1,000 active limits"
        yield _Case(group, 1_000, 1_000, flows=flows, below=goal)
    for fabric in ("mesh",) if quick else ("mesh", "pushsum"):
        for peers in (100,) if quick else (2, 10, 100, 1_000):
            yield _Case(f"peers, {fabric}", 1, 1, peers, fabric, by_peers=True)


async def measure(setting: Setting) -> Outcome:
    """Measure one daemon after the other."""
    rows: list[Row] = []
    for case in _cases(setting.quick):
        what = f"{case.limits} limits, {case.active} active, {case.peers} peers, {case.fabric}"
        setting.progress.step(f"{what}: starting")
        lane = Lane(1, "lane1")
        async with wired(setting, [lane]) as members:
            place = Place(setting, members, lane)
            daemon = await _start(place, case)
            setting.progress.step(f"{what}: measuring")
            rows += await _watch(place, daemon, case)
    return Outcome(rows, CORE[0], axis="limits, flows, or peers")


async def _start(place: Place, case: _Case) -> Daemon:
    """Peers first, then the daemon; return when all know each other."""
    peers = {
        f"peer-{number}": f"127.1.{number // 250}.{number % 250 + 1}"
        for number in range(case.peers)
    }
    daemon = configured(
        place,
        "kernel",
        prefixes(case.limits)(place.lane),
        {
            "gossip": {"fabric": case.fabric, "branching": BRANCHING, "interval": "50ms"},
            "peer": [{"name": name, "address": f"{at}:{PORT}"} for name, at in peers.items()],
        },
        listen=f"{_HOST}:{PORT}",
    )
    daemon.launch(place.members)
    command = [sys.executable, "-m", "testbed.bench.echo"]
    echo = place.members.start("peers", place.lane.namespace, command)
    await echo.send(
        {"daemon": daemon.name, "address": _HOST, "peers": peers, "fabric": case.fabric}
    )
    await echo.receive()
    await daemon.ready()
    return daemon


async def _watch(place: Place, daemon: Daemon, case: _Case) -> list[Row]:
    """Measure for some windows."""
    windows, window_s = place.setting.choose(6, 2), 2.0
    field = Field(place.setting, place.members, [place.lane], [])
    cores = []
    async with trio.open_nursery() as nursery:
        if case.active:
            blast = Blast(
                field, SMALLEST_FRAME, _SETTLE_S + windows * window_s,
                rate=case.packets_per_s, addresses=case.active, flows=case.flows,
            )  # fmt: skip
            nursery.start_soon(blast.measure, place.lane)
        await trio.sleep(_SETTLE_S)
        first = await _account(daemon)
        for _ in range(windows):
            before = daemon.clock()
            await trio.sleep(window_s)
            cores.append(daemon.cost(before)["core_share"])
        last = await _account(daemon)
        resident = daemon.resident_bytes()
    reached = sum(limit["arrived_packets"] > 0 for limit in await daemon.ask("/v1/limits"))
    if reached != case.active:
        raise MeasurementError(f"packets reached {reached} limits, not {case.active}")
    elapsed_s, used_s, sent = (after - before for after, before in zip(last, first, strict=True))
    ticks = sent / case.updates_a_tick
    named = case.group, f"{case.x:,}"
    return [
        Row(*named, *CORE, [100 * core for core in cores], below=case.below, x=case.x),
        Row(*named, *TICK, [1e3 * used_s / ticks], x=case.x),
        Row(*named, *KEPT, [ticks * INTERVAL_S / elapsed_s], x=case.x),
        Row(*named, *MEMORY, [resident / 1e6], x=case.x),
    ]


async def _account(daemon: Daemon) -> tuple[float, float, float]:
    """Time, processor time, updates sent."""
    status = await daemon.ask("/v1/status")
    return *daemon.clock(), status["gossip"]["sent"]
