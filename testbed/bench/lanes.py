"""Lanes: equal paths from a source to a sink, each with another limiter.

    source ==== <lane 1> ==== sink
           ==== <lane 2> ====

Each box is a network namespace, each line a veth pair. Lanes share source, sink and processors, and
differ only in their contestants. In a slice one lane carries traffic. The processes of the others
are stopped meanwhile, as they would take processor time.

Addresses: 10.1.<n>.1 source and .2 lane, 10.2.<n>.1 lane and .2 sink. 10.<16 + n>.0.0/16 lies
behind the sink and leads nowhere: packets to it cross the lane, and the sink drops them as soon
as it sees their Ethernet address.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from testbed import netns
from testbed.crew import Child, Crew, crew
from testbed.errors import MeasurementError
from testbed.harness.progress import Progress
from testbed.topology import End, Veth, build, set_offloads, veth

SOURCE, SINK = "source", "sink"
_NOWHERE_MAC = "02:00:00:00:00:01"

Sample = dict[str, float]
"""The measured values of a slice, by quantity."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The common settings of a run's benchmarks."""

    state: Path
    """A directory for configurations, logs and programs."""
    progress: Progress
    quick: bool
    cpus: tuple[int, int]
    """Processors of senders and of receivers."""

    def choose(self, full: int, quick: int) -> int:
        """The number for a quick run if this is one, else that for a full run."""
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Lane:
    """A path from source to sink; several may share a namespace."""

    number: int
    role: str
    """Role of the namespace between source and sink."""

    @property
    def namespace(self) -> str:
        """Name of the lane's namespace."""
        return netns.namespace(self.role)

    @property
    def veths(self) -> tuple[Veth, Veth]:
        """The pairs before and behind the lane's namespace."""
        n = self.number
        return (
            veth(1, n, (SOURCE, f"s{n}"), (self.role, f"in{n}")),
            veth(2, n, (self.role, f"out{n}"), (SINK, f"k{n}")),
        )

    @property
    def source(self) -> End:
        """The source's end."""
        return self.veths[0].near

    @property
    def entry(self) -> End:
        """The lane's end towards the source."""
        return self.veths[0].far

    @property
    def exit(self) -> End:
        """The lane's end towards the sink, where packets are limited."""
        return self.veths[1].near

    @property
    def sink(self) -> End:
        """The sink's end."""
        return self.veths[1].far

    @property
    def nowhere(self) -> str:
        """First address of those behind the sink that lead nowhere."""
        return f"10.{16 + self.number}.0.0"


@dataclass(frozen=True, slots=True)
class Place:
    """A lane for a contestant, with its resources."""

    setting: Setting
    members: Crew
    lane: Lane

    @property
    def name(self) -> str:
        """Name of a daemon in this lane."""
        return f"lane{self.lane.number}"


class Contestant:
    """The contestant of a lane. Without a subclass: no limiter, the lane only forwards."""

    name = "none"

    def __init__(self) -> None:
        self.processes: list[Child] = []

    async def start(self, place: Place) -> None:
        """Start in a lane; return when ready.

        Raises:
            HostError: the host lacks something.
        """

    async def check(self, place: Place) -> str:  # noqa: ARG002 -- for those that need it
        """Check at the end that the contestant did its work.

        Returns:
            The reason why its figures do not count; empty if they do.

        Raises:
            MeasurementError: it failed.
        """
        return ""

    def pause(self) -> None:
        """Stop all processes, so that they take no processor time."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let all processes go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            if process.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)


@asynccontextmanager
async def wired(
    setting: Setting, lanes: Sequence[Lane], offloads: Sequence[str] = ()
) -> AsyncIterator[Crew]:
    """Build lanes with these offloads; on exit remove them and end all processes."""
    commands: dict[str, list[str]] = {SOURCE: [], SINK: []}
    veths = [each for lane in lanes for each in lane.veths]
    for lane in lanes:
        device, way_on = lane.exit.device, f"via {lane.entry.address}"
        nowhere = f"10.2.{lane.number}.9"
        commands[SOURCE] += [
            f"route add 10.2.{lane.number}.0/24 {way_on}",
            f"route add {lane.nowhere}/16 {way_on}",
        ]
        commands[SINK].append(f"route add 10.1.{lane.number}.0/24 via {lane.exit.address}")
        commands.setdefault(lane.role, []).extend(
            [
                f"neighbour add {nowhere} lladdr {_NOWHERE_MAC} dev {device} nud permanent",
                f"route add {lane.nowhere}/16 via {nowhere}",
                # To the other lanes, for gossip.
                f"route replace 10.2.0.0/16 via {lane.sink.address}",
            ]
        )
    try:
        build(commands, veths)
        for role in commands:
            ends = (end for each in veths for end in (each.near, each.far))
            devices = [end.device for end in ends if end.role == role]
            netns.within(netns.namespace(role), partial(set_offloads, devices, offloads, on=True))
        async with crew(setting.state) as members:
            yield members
    finally:
        netns.remove(netns.own())


@dataclass(frozen=True, slots=True)
class Field:
    """Lanes with a contestant in each."""

    setting: Setting
    members: Crew
    lanes: Sequence[Lane]
    contestants: Sequence[Contestant]
    disqualified: dict[str, str] = field(default_factory=dict)
    """The reason why a contestant's figures do not count, by contestant."""

    async def alternate(
        self,
        what: str,
        rounds: int,
        measure: Callable[[Lane], Awaitable[Sample]],
        some: Sequence[int] | None = None,
    ) -> list[list[Sample]]:
        """The results of `measure`, by round, for each lane or for the lanes `some`.

        Every other round goes backward.
        """
        order = range(len(self.lanes)) if some is None else some
        seen: dict[int, list[Sample]] = {index: [] for index in order}
        for number in range(rounds):
            self.setting.progress.step(f"{what}, round {number + 1} of {rounds}")
            for index in order if number % 2 == 0 else reversed(order):
                self.contestants[index].resume()
                try:
                    seen[index].append(await measure(self.lanes[index]))
                finally:
                    self.contestants[index].pause()
        return list(seen.values())


@asynccontextmanager
async def contest(
    setting: Setting, contestants: Sequence[Contestant], offloads: Sequence[str] = ()
) -> AsyncIterator[Field]:
    """A lane for each contestant, all of them started, and paused.

    Raises:
        HostError: the host cannot do one of them.
    """
    lanes = [Lane(number, f"lane{number}") for number in range(1, len(contestants) + 1)]
    async with wired(setting, lanes, offloads) as members:
        taken = [(each, Place(setting, members, lane)) for each, lane in
                 zip(contestants, lanes, strict=True)]  # fmt: skip
        try:
            for contestant, place in taken:
                setting.progress.step(f"starting {contestant.name}")
                await contestant.start(place)
                contestant.pause()
            there = Field(setting, members, lanes, contestants)
            yield there
            for contestant, place in taken:
                contestant.resume()
                if reason := await contestant.check(place):
                    there.disqualified[contestant.name] = reason
        finally:
            # A stopped process does not handle the signal to end.
            for contestant in contestants:
                contestant.resume()


def ratios(of: Sequence[Sample], to: Sequence[Sample], quantity: str) -> list[float]:
    """One quantity divided by the other lane's, by round.

    Raises:
        MeasurementError: it is 0 on the other lane.
    """
    if not all(theirs[quantity] for theirs in to):
        raise MeasurementError(f"a round without any {quantity} on the lane to compare with")
    return [mine[quantity] / theirs[quantity] for mine, theirs in zip(of, to, strict=True)]


def differences(of: Sequence[Sample], to: Sequence[Sample], quantity: str) -> list[float]:
    """One quantity less the other lane's, by round."""
    return [mine[quantity] - theirs[quantity] for mine, theirs in zip(of, to, strict=True)]


def values(of: Sequence[Sample], quantity: str) -> list[float]:
    """One quantity, by round."""
    return [sample[quantity] for sample in of]
