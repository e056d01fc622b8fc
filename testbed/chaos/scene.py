"""A fleet of real daemons under load, actions on it, and measurements.

    src-f1 ==== wan ==== l1 ==== sink        (testbed.topology)
    src-f2 ====     ==== l2 ====
    src-f3 ====     ==== l3 ====

Every limiter has TCP flows, a constant stream of UDP, and a canary (`testbed.chaos.source`). The
canary's packets go to another address of the sink, and are under a limit of their own. Gossip
passes `wan`. Rules of its routing cut links, each in one direction.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import trio

from drld import units
from drld.config.limits import DEFAULT_FABRIC
from testbed import experiment_file, netns
from testbed.chaos.members import LOAD, WATCHED, Member
from testbed.chaos.series import WINDOW_S, Seen, recovery_s
from testbed.chaos.source import CANARY
from testbed.crew import Child, Crew, crew
from testbed.errors import MeasurementError
from testbed.experiment import Experiment
from testbed.fleet import daemon_document
from testbed.link import choose_links
from testbed.topology import (
    SINK,
    TRAFFIC_PORT,
    WAN,
    Plan,
    build,
    limiter_role,
    plan,
    sink_device,
    source_role,
)

LIMITERS = 3
RATE = 12_000_000 // 8
FABRIC = DEFAULT_FABRIC
"""The default fabric."""
RTT, GOSSIP_RTT = "30ms", "10ms"
STREAM_BYTES = 1000
"""Size of a packet of constant UDP, with headers."""
_STREAM_PORT, _HEADERS = 5002, 28
CANARIES_PER_S = 100
_CANARY_PORT, _CANARY_RATE = 5003, 1_200_000 // 8
_KEY = "gossip.key"
_SETTLE_S = 120.0
"""Longest wait for a fleet that is full and even. An idle host takes 2 s, and one with 15 runnable
processes for each processor took more than 40 s."""
_SAMPLED_S = 60.0
"""Longest wait for a sample."""
_TRIP_S = 0.3
"""Upper bound of a packet's time from source to sink."""
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """The limit of a fleet, and the traffic under it."""

    rate: int = RATE
    """Rate of the limit, bytes/s."""
    burst: int = 60_000
    flows: int = 3
    """TCP flows of each limiter."""
    stream: int = RATE // 12
    """Bytes/s of constant UDP at each limiter."""
    fabric: str = FABRIC


FULL_LOAD = Load()


@dataclass(slots=True)
class Canary:
    """The canaries' packets, which no limit drops: sending times and arrivals."""

    sent: list[float] = field(default_factory=list)
    received: set[int] = field(default_factory=set)

    def lost(self, begin_s: float, end_s: float) -> int:
        """The number of packets of a time that did not arrive."""
        return sum(
            begin_s <= sent_s < end_s and number not in self.received
            for number, sent_s in enumerate(self.sent)
        )


@dataclass(slots=True)
class Scene:
    """Daemons, traffic and measurement, while they run."""

    layout: Plan
    members: dict[str, Member]
    traffic: dict[str, Child]
    """The source of each limiter."""
    sink: Child
    crew: Crew
    seen: Seen
    """The packets and canaries that the sink has received up to now."""
    rng: Random
    datapath: str
    load: Load
    canaries: dict[str, Canary]
    earlier: str | None = None
    """A revision to go back to, or None: the default (`testbed.chaos.versions`)."""
    _cuts: set[tuple[str, str]] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """Names of the limiters."""
        return list(self.members)

    @property
    def wan(self) -> str:
        """The namespace that all gossip passes."""
        return netns.namespace(WAN)

    def pick(self, count: int) -> list[Member]:
        """`count` limiters, chosen by the seed."""
        return [self.members[name] for name in self.rng.sample(self.names, count)]

    def others(self, some: Iterable[Member]) -> list[Member]:
        """The limiters that are not among `some`."""
        chosen = {member.name for member in some}
        return [member for member in self.members.values() if member.name not in chosen]

    # Daemons

    async def revive(self, some: Iterable[Member]) -> None:
        """Start daemons again; return when they police."""
        some = list(some)
        for member in some:
            await self.crew.dismiss([member.process])
            member.launch(self.crew)
        for member in some:
            await member.ready()

    async def flows(self, limiter: str, count: int) -> None:
        """Set the number of TCP flows at a limiter."""
        await self.traffic[limiter].send({"flows": count})

    # The network between limiters

    def cut(self, source: Member, destination: Member) -> None:
        """Drop all gossip from one limiter to another."""
        self._rule("add", source, destination)
        self._cuts.add((source.name, destination.name))

    def heal(self) -> None:
        """Let all gossip pass again."""
        for source, destination in sorted(self._cuts):
            self._rule("del", self.members[source], self.members[destination])
        self._cuts.clear()

    def _rule(self, verb: str, source: Member, destination: Member) -> None:
        way = f"iif c-{source.name} to {self.layout.gossip_address[destination.name]}"
        netns.run(f"ip -n {self.wan} rule {verb} priority 50 {way} blackhole".split())

    def lose(self, share: float) -> None:
        """Lose this part of all gossip, at random; 0: none."""
        iptables = f"ip netns exec {self.wan} iptables"
        netns.run(f"{iptables} -F FORWARD".split())
        at_random = f"-m statistic --mode random --probability {share} -j DROP"
        for name in self.names if share else ():
            netns.run(f"{iptables} -A FORWARD -i c-{name} {at_random}".split())

    # Measurements

    async def settled(self) -> None:
        """Wait until all are connected and the fleet is full and even.

        Raises:
            MeasurementError: that does not happen in time.
        """
        status: dict[str, Any] = {}
        with trio.move_on_after(_SETTLE_S):
            for member in self.members.values():
                while True:
                    status[member.name] = peers = (await member.ask("/v1/status"))["peers"]
                    if peers["connected"] == peers["configured"]:
                        break
                    await trio.sleep(_POLL_S)
            since_s = time.monotonic()
            while recovery_s(self.seen, since_s, self.load.rate) is None:
                await trio.sleep(_POLL_S)
            return
        raise MeasurementError(f"the fleet did not settle in {_SETTLE_S:g} s: {status}")

    async def recovered(self, since_s: float, lasts_s: float, timeout_s: float) -> float | None:
        """Wait until the fleet is full and even, and has been for `lasts_s`; return when that
        began, in seconds after `since_s`, or None: not in time."""
        with trio.move_on_after(timeout_s):
            await trio.sleep(lasts_s + WINDOW_S)
            while True:
                found = recovery_s(self.seen, since_s, self.load.rate, lasts_s)
                if found is not None:
                    return found
                await trio.sleep(_POLL_S)
        return None

    async def look_at_canaries(self) -> None:
        """Read the canaries' packets sent and received up to now."""
        for limiter, source in self.traffic.items():
            await source.send({"report": True})
            self.canaries[limiter].sent += (await source.receive())["sent"]
        await trio.sleep(_TRIP_S)
        await self.sink.send({"report": True})
        received = (await self.sink.receive())["received"]
        for limiter, numbers in zip(self.traffic, received, strict=True):
            self.canaries[limiter].received.update(numbers)

    async def stop(self) -> list[str]:
        """Stop all daemons; return failures and leftovers."""
        found: list[str] = []
        for member in self.members.values():
            found += await member.stop()
        return found


@asynccontextmanager
async def scene(
    links: str,
    datapath: str,
    rng: Random,
    prepare: Callable[[Member, Path], None],
    load: Load = FULL_LOAD,
) -> AsyncIterator[Scene]:
    """A fleet that is up and under load; on exit it is removed.

    Args:
        links: the backend of the emulated links (`testbed.link.choose_links`).
        datapath: that of the daemons.
        rng: chooses keys, phases and losses.
        prepare: may change how a daemon is started.
        load: the limit and the traffic.
    """
    with netns.workspace() as state:
        key = state / _KEY
        key.touch(0o600)
        key.write_text(rng.randbytes(32).hex(), encoding="ascii")
        layout = plan(_definition(load), "fps", rng.randrange(1 << 16))
        _build(layout)
        async with crew(state) as processes:
            await choose_links(links).start(processes, netns.namespace(WAN), layout.links)
            members = {
                name: _member(layout, name, datapath, state, load) for name in layout.limiters
            }
            for member in members.values():
                prepare(member, state)
                member.write()
                member.launch(processes)
            job: dict[str, Any] = {
                "port": TRAFFIC_PORT, "stream": _STREAM_PORT, "canary": _CANARY_PORT,
                "sources": len(members),
            }  # fmt: skip
            inside = netns.namespace(SINK)
            sink = await processes.start_module("sink", inside, "chaos.sink", job)
            await sink.receive()
            for member in members.values():
                await member.ready()
            traffic = await _start_traffic(processes, layout, rng, load)
            job = {"devices": {limiter: sink_device(limiter) for limiter in layout.limiters}}
            meter = await processes.start_module("meter", inside, "chaos.meter", job)
            seen = Seen(canary=CANARIES_PER_S * (CANARY.size + _HEADERS))
            async with trio.open_nursery() as nursery:
                await nursery.start(_follow, meter, seen)
                canaries = {name: Canary() for name in members}
                yield Scene(
                    layout, members, traffic, sink, processes, seen, rng, datapath, load, canaries
                )
                nursery.cancel_scope.cancel()


async def _follow(meter: Child, seen: Seen, task_status: trio.TaskStatus[None]) -> None:
    """Record the meter's samples; report `started` after the first one."""
    for number in itertools.count():
        sample = await meter.receive(_SAMPLED_S)
        seen.add(sample["time_s"], sample["forwarded"], sample["late_s"])
        if not number:
            task_status.started()


def _definition(load: Load) -> Experiment:
    """The network, as an experiment has it."""
    return experiment_file.build(
        {
            "name": "chaos",
            "seconds": 1.0,
            "allocators": ["fps"],
            "limit": {"rate": f"{load.rate * 8}bit", "burst": f"{load.burst}B"},
            "gossip": {"rtt": GOSSIP_RTT},
            "flows": [
                {"name": f"f{number}", "limiter": f"l{number}", "count": 1, "rtt": RTT}
                for number in range(1, LIMITERS + 1)
            ],
        },
        "chaos",
    )


def watched_address(limiter: str, layout: Plan) -> str:
    """The canary's address at the sink, besides the load's address."""
    return layout.sink_address[limiter].replace("10.4.", "10.5.", 1)


def _build(layout: Plan) -> None:
    commands = {role: list(lines) for role, lines in layout.commands.items()}
    for limiter in layout.limiters:
        watched = watched_address(limiter, layout)
        commands[SINK].append(f"address add {watched}/32 dev lo")
        commands[limiter_role(limiter)].append(
            f"route add {watched}/32 via {layout.sink_address[limiter]}"
        )
    build(commands, layout.veths)


def _member(layout: Plan, name: str, datapath: str, state: Path, load: Load) -> Member:
    document = daemon_document(_definition(load), "fps", layout, name, datapath)
    # All other settings are defaults.
    document["gossip"] = {"fabric": load.fabric, "keys": [{"id": 1, "file": str(state / _KEY)}]}
    document["limit"] = [
        {
            "id": 1,
            "name": LOAD,
            "rate": units.format_rate(load.rate),
            "burst": units.format_size(load.burst),
            "match": {"out": "out", "destination": "10.4.0.0/16"},
        },
        {
            "id": 2,
            "name": WATCHED,
            "rate": units.format_rate(_CANARY_RATE),
            "burst": "60kB",
            "allocator": "static",
            "match": {"out": "out", "destination": "10.5.0.0/16"},
        },
    ]
    return Member(document, state)


async def _start_traffic(
    processes: Crew, layout: Plan, rng: Random, load: Load
) -> dict[str, Child]:
    """The sources, by limiter."""
    traffic = {}
    for number, (group, limiter) in enumerate(layout.path.items()):
        sink = layout.sink_address[limiter]
        job = {
            "number": number,
            "offset_s": rng.random() / 10,
            "flows": load.flows,
            "flows_to": (sink, TRAFFIC_PORT),
            "stream_to": (sink, _STREAM_PORT),
            "stream_per_s": load.stream / STREAM_BYTES,
            "stream_bytes": STREAM_BYTES - _HEADERS,
            "canary_to": (watched_address(limiter, layout), _CANARY_PORT),
            "canary_per_s": CANARIES_PER_S,
        }
        traffic[limiter] = await processes.start_module(
            f"source {group}", netns.namespace(source_role(group)), "chaos.source", job
        )
    for source in traffic.values():
        await source.receive()
    return traffic
