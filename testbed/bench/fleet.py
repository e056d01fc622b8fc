"""The time in which a fleet with a registry changes: limits and members come and go.

Real daemons on the kernel datapath and a real etcd run in one namespace, without traffic. The time
of a write is the time at which etcd reports it to a watcher. A daemon reports the revision in force
in `alive/` (docs/registry.md). The results of gossip are read from the daemons every 5 ms.

One round: a limit is added to all; a limiter registers, is killed and then removed; it registers
again, and is stopped.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

from testbed import netns
from testbed.bench.lanes import Setting
from testbed.bench.summary import Outcome, Row
from testbed.crew import Child, Crew, crew
from testbed.daemon import Daemon
from testbed.errors import MeasurementError
from testbed.programs import program
from testbed.topology import build

TIME = ("time", "ms")
_ROLE = "fleet"
_URL, _PEER_URL = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
_PREFIX = f"/drld/{_ROLE}/"
TTL = "10s"
_PATIENCE_S = 60.0
_POLL_S = 0.005
_LIMIT = ("--rate", "10mbit", "--burst", "75kB", "--out", "uplink")
_RATE_BPS = 10e6
_ROUNDING = 1e-3
"""Tolerance for rates, which are whole bytes per second."""
EVENTS = {
    "added": "limit written → all enforce it",
    "command": "`drlctl limit add --fleet`, start to end",
    "counted": "limiter registered → all count it",
    "joined": "limiter registered → joined",
    "share": "limiter registered → its share in force",
    "silent": "limiter killed → its share out of the limit",
    "lease": "limiter killed → its lease has ended",
    "removed": "member removed → all know of it",
    "leaving": "SIGTERM → it has left",
    "left": "limiter left → all know of it",
}
"""The measurements, in the order of the table."""


Values = dict[str, dict[str, Any]]
"""The registry's values by key."""


class _State(NamedTuple):
    """The registry after an event."""

    at: float
    """Time of the event, seconds of the monotonic clock."""
    revision: int
    values: Values


class _Registry:
    """The registry as seen by the watcher: its state after each event."""

    def __init__(self) -> None:
        self.states = [_State(0.0, 0, {})]
        self._changed = trio.Event()

    async def follow(self, watcher: Child) -> None:
        while True:
            event = await watcher.receive(float("inf"))
            values = dict(self.states[-1].values)
            if event["value"] is None:
                values.pop(event["key"], None)
            elif event["key"] != "fleet":
                values[event["key"]] = json.loads(event["value"])
            self.states.append(_State(event["at"], event["revision"], values))
            self._changed.set()
            self._changed = trio.Event()

    async def when(
        self, what: str, true: Callable[[Values], bool], since: int | None = None
    ) -> _State:
        """The first state in which a condition holds, from the present one on (or number `since`).

        Raises:
            MeasurementError: it never held.
        """
        number = len(self.states) - 1 if since is None else since
        with trio.move_on_after(_PATIENCE_S):
            while True:
                while number == len(self.states):
                    await self._changed.wait()
                if true(self.states[number].values):
                    return self.states[number]
                number += 1
        raise MeasurementError(f"never happened: {what}")

    async def new(self, begin: str) -> _State:
        """The state in which a new key with this beginning is written."""
        there = set(self.states[-1].values)
        return await self.when(
            f"{begin} is written",
            lambda values: any(key.startswith(begin) and key not in there for key in values),
        )

    async def gone(self, key: str) -> _State:
        """The state in which a key is deleted."""
        return await self.when(f"{key} is deleted", lambda values: key not in values)

    async def joined(self, name: str, since: int | None = None) -> _State:
        """The state in which all members count a limiter."""
        key = f"members/{name}"
        return await self.when(
            f"{name} joins", lambda values: bool(values.get(key, {}).get("joined")), since
        )

    async def applied(self, names: Sequence[str], revision: int) -> float:
        """Wait until all of these members have a revision in force; return the time."""

        def have(values: Values) -> bool:
            said = [values.get(f"alive/{name}") for name in names]
            return all(value is not None and value["applied"] >= revision for value in said)

        return (await self.when(f"revision {revision} is in force", have, 0)).at


class _Fleet:
    """The daemons of the fleet, and the changes done to them."""

    def __init__(self, state: Path, members: Crew, registry: _Registry) -> None:
        """`state`: a directory for its files."""
        self.registry = registry
        self._state = state
        self._members = members
        self.daemons: dict[str, Daemon] = {}

    def start(self, number: int) -> str:
        """Start a limiter; return its name."""
        name = f"lim{number}"
        document = {
            "limiter": {"name": name, "listen": f"127.0.0.{number}:7946"},
            "packets": {"datapath": "kernel"},
            "registry": {
                "endpoints": [_URL],
                "fleet": _ROLE,
                "ttl": TTL,
                "cache": str(self._state / f"{name}.cache"),
                "interfaces": {"uplink": f"up{number}"},
            },
        }
        self.daemons[name] = Daemon(document, self._state, netns.namespace(_ROLE))
        self.daemons[name].launch(self._members)
        return name

    async def drlctl(self, *arguments: str) -> None:
        """Run `drlctl`, which finds etcd by the file of a limiter."""
        file = self.daemons["lim1"].file
        inside = ["ip", "netns", "exec", netns.namespace(_ROLE)]
        command = ["env", f"DRLD_CONFIG={file}", sys.executable, "-m", "drld.cli", *arguments]
        await trio.to_thread.run_sync(netns.run, [*inside, *command])

    async def in_force(self, names: Iterable[str], share: float) -> float:
        """The time at which all of these limiters have this rate of the limit in force.

        Raises:
            MeasurementError: never.
        """
        with trio.move_on_after(_PATIENCE_S):
            for name in names:
                daemon = self.daemons[name]
                await daemon.ready(peers_too=False)
                while abs(await self._share(daemon) - share) > _ROUNDING:
                    await trio.sleep(_POLL_S)
            return time.monotonic()
        raise MeasurementError(f"never happened: {share} of the limit in force everywhere")

    async def _share(self, daemon: Daemon) -> float:
        limits = await daemon.ask("/v1/limits")
        return float(limits[0]["limit_in_force_bps"]) / _RATE_BPS if limits else 0.0

    async def end(self, name: str, *, killed: bool) -> float:
        """Kill a daemon, or stop it and wait for its end; return the time of the signal."""
        daemon = self.daemons.pop(name).process
        at = time.monotonic()
        if killed:
            daemon.kill()
        await self._members.dismiss([daemon])
        return at


async def measure(setting: Setting) -> Outcome:
    """Measure one size of a fleet after the other."""
    rows: list[Row] = []
    for size in (1,) if setting.quick else (1, 3, 9):
        found: dict[str, list[float]] = {name: [] for name in EVENTS}
        setting.progress.step(f"{size} limiters: starting")
        async with _running(setting, size) as fleet:
            for number in range(setting.choose(5, 1)):
                setting.progress.step(f"{size} limiters: round {number + 1}")
                for event, seconds in (await _round(fleet, size)).items():
                    found[event].append(seconds)
        rows += [
            Row(
                EVENTS[event], f"{size} + 1 limiters", *TIME, [1e3 * each for each in times], x=size
            )
            for event, times in found.items()
        ]
    rows.sort(key=lambda each: [*EVENTS.values()].index(each.group))
    return Outcome(rows, TIME[0], axis="limiters before")


@asynccontextmanager
async def _running(setting: Setting, size: int) -> AsyncIterator[_Fleet]:
    """A fleet with a limit and all limiters as members."""
    devices = [
        line
        for number in range(1, size + 2)
        for line in (
            f"link add up{number} type veth peer name dn{number}",
            f"link set up{number} up",
            f"link set dn{number} up",
        )
    ]
    # A directory of its own, as daemons write their cache back to an empty etcd.
    state = setting.state / f"fleet-{size}"
    state.mkdir()
    try:
        build({_ROLE: devices}, [])
        async with crew(state) as members, trio.open_nursery() as nursery:
            namespace = netns.namespace(_ROLE)
            options = (
                f"--listen-client-urls {_URL} --advertise-client-urls {_URL} "
                f"--listen-peer-urls {_PEER_URL} --initial-advertise-peer-urls {_PEER_URL} "
                f"--initial-cluster default={_PEER_URL} --data-dir {state}/etcd"
            )
            members.start("etcd", namespace, [program("etcd"), *options.split()])
            job = {"url": _URL, "prefix": _PREFIX}
            watcher = await members.start_module("watcher", namespace, "bench.etcd_events", job)
            registry = _Registry()
            nursery.start_soon(registry.follow, watcher)
            fleet = _Fleet(state, members, registry)
            for number in range(1, size + 1):
                fleet.start(number)
            for name in fleet.daemons:
                await registry.joined(name)
            await fleet.drlctl("limit", "add", "--fleet", "--name", "first", *_LIMIT)
            await fleet.in_force(fleet.daemons, 1.0)
            yield fleet
            nursery.cancel_scope.cancel()
    finally:
        netns.remove(netns.own())


async def _round(fleet: _Fleet, size: int) -> dict[str, float]:
    """The measured times, in seconds."""
    registry, before = fleet.registry, list(fleet.daemons)
    found: dict[str, float] = {}

    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.drlctl, "limit", "add", "--fleet", "--name", "more", *_LIMIT)
        written = await registry.new("limits/")
        found["added"] = await registry.applied(before, written.revision) - written.at
    found["command"] = time.monotonic() - began
    await fleet.drlctl("limit", "remove", "--fleet", "more")

    new, times = await _join(fleet, size, before)
    found |= times

    killed = await fleet.end(new, killed=True)
    found["silent"] = await fleet.in_force(before, size / (size + 1)) - killed
    found["lease"] = (await registry.gone(f"alive/{new}")).at - killed
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fleet.drlctl, "fleet", "remove", new)
        removed = await registry.gone(f"members/{new}")
        found["removed"] = await registry.applied(before, removed.revision) - removed.at

    await _join(fleet, size, before)
    async with trio.open_nursery() as nursery:
        asked = time.monotonic()
        nursery.start_soon(partial(fleet.end, new, killed=False))
        left = await registry.gone(f"members/{new}")
        found["leaving"] = left.at - asked
        found["left"] = await registry.applied(before, left.revision) - left.at
    await fleet.in_force(before, 1.0)
    return found


async def _join(fleet: _Fleet, size: int, before: list[str]) -> tuple[str, dict[str, float]]:
    """Start another limiter; return its name and the times from its registration on."""
    registry = fleet.registry
    begin = len(registry.states)
    new = fleet.start(size + 1)
    registered = await registry.new(f"members/{new}")
    counted = await registry.applied(before, registered.revision)
    share = await fleet.in_force([*before, new], 1.0)
    joined = await registry.joined(new, begin)
    ends = {"counted": counted, "joined": joined.at, "share": share}
    return new, {event: at - registered.at for event, at in ends.items()}
