"""An hour of usual events in a fleet, to find resources that grow.

One daemon on each datapath lives all the time. A third is killed and started again, on one
datapath or the other. Meanwhile configurations are reloaded, good ones and bad ones; flows come and
go; links between limiters break and lose packets; clients send requests, and hang up in the middle
of a trace.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import trio

from testbed import child
from testbed.chaos.fault import KERNEL, NFQUEUE
from testbed.chaos.logs import TRACE
from testbed.chaos.members import LOAD, Health, Member
from testbed.chaos.scene import Load, Scene, scene
from testbed.errors import MeasurementError
from testbed.harness.finding import Check

SOAK, BOTH = "soak", "both"
"""Name of the soak, and its datapath."""
_SETTLE_S = 300.0
"""Memory counts from this time on, when all code has run once, or from a third of the soak on."""
_SAMPLE_S = 5.0
_PAUSE_S = (1.0, 6.0)
"""Time between two events."""
_GROWTH_KB = (1 << 20) / 1000
"""Largest growth in an hour."""
_MOST_KB = 100_000
_DESCRIPTORS = 16
"""Largest increase of descriptors: those of clients, and of a reload."""
_LAST = 20
"""Number of last samples, whose median is the final use."""
_RATE = 2_000_000 // 8
_RATES = ("1500kbit", "2mbit", "2500kbit")
_BAD = "this is no configuration"


class Sample(NamedTuple):
    """A sample of a daemon that lives all the time."""

    time_s: float
    health: Health


def slope(samples: Iterable[Sample], since_s: float) -> float:
    """Growth of a daemon's memory from a time on, bytes an hour, by least squares."""
    chosen = [(time_s, health.resident_bytes) for time_s, health in samples if time_s >= since_s]
    return 3600 * statistics.linear_regression(*zip(*chosen, strict=True)).slope


class Soak:
    """One soak: a fleet, the usual events, and samples of its resources."""

    def __init__(self, fleet: Scene, seconds: float) -> None:
        self.lives: dict[str, list[Sample]] = {"l1": [], "l2": []}
        self.happened: Counter[str] = Counter()
        self._fleet = fleet
        self._seconds = seconds
        self._rng = fleet.rng
        self._mortal = fleet.members["l3"]

    async def run(self) -> None:
        """Cause events, and sample the daemons."""
        begin_s = time.monotonic()
        kinds: Sequence[Callable[[], Awaitable[None]]] = [
            self._die,
            self._reload,
            self._reload_badly,
            self._change_flows,
            self._change_flows,
            self._part,
            self._lose,
            self._ask,
            self._hang_up,
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, begin_s)
            while time.monotonic() - begin_s < self._seconds:
                kind = self._rng.choice(kinds)
                self.happened[kind.__name__.strip("_").replace("_", " ")] += 1
                await kind()
                await trio.sleep(self._rng.uniform(*_PAUSE_S))
            nursery.cancel_scope.cancel()

    async def _watch(self, begin_s: float) -> None:
        while True:
            now_s = time.monotonic() - begin_s
            for name, life in self.lives.items():
                life.append(Sample(now_s, self._fleet.members[name].health()))
            child.send(step=f"soak: {now_s:.0f} of {self._seconds:.0f} s")
            await trio.sleep(_SAMPLE_S)

    async def _die(self) -> None:
        self._mortal.kill()
        await trio.sleep(self._rng.uniform(0.5, 4.0))
        self._mortal.document["packets"]["datapath"] = self._rng.choice([KERNEL, NFQUEUE])
        self._mortal.write()
        await self._fleet.revive([self._mortal])

    async def _reload(self) -> None:
        rate = self._rng.choice(_RATES)
        for member in self._fleet.members.values():
            member.document["limit"][0]["rate"] = rate
            member.write()
        for member in self._fleet.members.values():
            await member.reload()

    async def _reload_badly(self) -> None:
        for member in self._fleet.members.values():
            member.file.write_text(_BAD, encoding="utf-8")
            await member.reload()
            member.write()

    async def _change_flows(self) -> None:
        await self._fleet.flows(self._rng.choice(self._fleet.names), self._rng.randint(0, 4))

    async def _part(self) -> None:
        one, other = self._rng.sample(list(self._fleet.members.values()), 2)
        self._fleet.cut(one, other)
        if self._rng.random() < 0.5:
            self._fleet.cut(other, one)
        await trio.sleep(self._rng.uniform(0.5, 4.0))
        self._fleet.heal()

    async def _lose(self) -> None:
        self._fleet.lose(self._rng.choice([0.05, 0.2, 0.5]))
        await trio.sleep(self._rng.uniform(0.5, 4.0))
        self._fleet.lose(0.0)

    async def _ask(self) -> None:
        for member in self._fleet.members.values():
            for path in ("/v1/status", "/v1/limits", "/v1/peers", "/v1/limits/none"):
                async with member.client() as client:
                    await client.get(path)

    async def _hang_up(self) -> None:
        """Follow a trace for a moment, and close the connection."""
        for member in self._fleet.members.values():
            path = f"/v1/limits/{LOAD}/trace"
            async with member.client() as client, client.stream("GET", path) as trace:
                with trio.move_on_after(0.3):
                    async for _ in trace.aiter_lines():
                        pass

    def checks(self) -> list[Check]:
        """The checks of the promises."""
        settled_s = min(_SETTLE_S, self._seconds / 3)
        found = []
        for name, life in self.lives.items():
            where = f"{name} ({self._fleet.members[name].document['packets']['datapath']})"
            descriptors = [health.descriptors for _, health in life]
            first, last = descriptors[0], round(statistics.median(descriptors[-_LAST:]))
            growth = slope(life, settled_s) / 1000
            most = max(health.resident_bytes for _, health in life) / 1000
            found += [
                Check(f"{where} memory grows by", growth, "kB/h", most=_GROWTH_KB),
                Check(f"{where} memory at most", most, "kB", most=_MOST_KB),
                Check(f"{where} more descriptors at the end", last - first, most=0),
                Check(f"{where} descriptors at most", max(descriptors),
                      most=first + _DESCRIPTORS),
            ]  # fmt: skip
        said = {name: self._fleet.members[name].lines() for name in self.lives}
        traces = sum(TRACE in line for lines in said.values() for line in lines)
        found.append(Check("traces in logs", traces, most=0))
        return found


def _prepare(member: Member, state: Path) -> None:  # noqa: ARG001 -- the hook's signature
    member.document["packets"]["datapath"] = NFQUEUE if member.name == "l2" else KERNEL


async def carry_out(
    seconds: float, links: str, seed: int, fabric: str
) -> tuple[dict[str, Any], list[str]]:
    """Soak a fleet; return its record and leftovers.

    Raises:
        DrldError: the host lacks something, or a daemon failed.
    """
    rng = Random(f"{seed}/{SOAK}")
    load = Load(_RATE, 20_000, flows=2, stream=_RATE // 12, fabric=fabric)
    async with scene(links, KERNEL, rng, _prepare, load) as fleet:
        soak = Soak(fleet, seconds)
        try:
            await soak.run()
        except httpx.HTTPError as error:
            raise MeasurementError(f"a daemon did not answer: {error!r}") from error
        checks = soak.checks()
        left = await fleet.stop()
    record = {
        "fault": SOAK,
        "title": "churn",
        "datapath": BOTH,
        "seconds": seconds,
        "checks": [check.record for check in checks],
        "said": {},
        "discarded": [],
        "happened": soak.happened,
        "lives": {
            name: [[round(time_s), health.resident_bytes, health.descriptors]
                   for time_s, health in life]
            for name, life in soak.lives.items()
        },
    }  # fmt: skip
    return record, left
