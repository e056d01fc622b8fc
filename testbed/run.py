"""One run: a network, limiters, flows and a sampler, made and removed again."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import trio

from testbed import believed, netns
from testbed.attempts import refused
from testbed.cpu import CpuTimes
from testbed.crew import Child, Crew, crew
from testbed.errors import MeasurementError, first_of
from testbed.events import Event
from testbed.experiment import Experiment, Flow
from testbed.experiment_tables import NS_PER_S, STEP_NS
from testbed.fleet import Fleet, choose_fleet
from testbed.harness.progress import Progress
from testbed.link import Links
from testbed.measure import lateness_problem, worst_lateness
from testbed.record import Observation, record
from testbed.topology import (
    SINK,
    TRAFFIC_PORT,
    WAN,
    Plan,
    build_plan,
    data_device,
    limiter_role,
    plan,
    sink_device,
    source_role,
)
from testbed.traffic import FIRST_PORT, check_congestion
from testbed.udpsources import UdpSources
from testbed.web import Web

SAMPLE_NS = 50_000_000

_LEAD_S = 0.5
"""Time from sending the start time to the start, by which every process has read it."""
_PATIENCE_S = 20.0
_TRACE_GAP_S = 1.0


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Settings of a run that are not part of the experiment."""

    datapath: str
    make_links: Callable[[], Links]
    once: bool = False
    """Whether a run that the host disturbed counts, with a remark."""


async def run_once(
    experiment: Experiment,
    allocator: str,
    repetition: int,
    options: RunOptions,
    progress: Progress,
) -> dict[str, Any]:
    """Carry out one run and return its record for result.json.

    Raises:
        MeasurementError: the run failed, so that its figures have no meaning.
        HostError: the host lacks something that the run needs.
    """
    # The same for every allocator, so that all have the same start times.
    seed = experiment.table.seed * 1000 + repetition
    with netns.workspace() as state:
        check_congestion({group.table.congestion for group in experiment.groups})
        progress.step("building the network")
        layout = plan(experiment, allocator, seed)
        build_plan(layout)
        async with crew(state) as members:
            run = _Run(experiment, allocator, layout, members, options)
            await run.prepare(state, seed, progress)
            observation = await _unwrapped(run.carry_out, progress)
    return record(experiment, allocator, repetition, layout, observation)


async def _unwrapped(function: Callable[[Progress], Any], progress: Progress) -> Observation:
    """Call it, and raise the first error itself rather than the group that a nursery makes."""
    try:
        observation: Observation = await function(progress)
    except Exception as error:
        raise first_of(error) from None
    return observation


class _Run:
    """The moving parts of a run."""

    def __init__(
        self,
        experiment: Experiment,
        allocator: str,
        layout: Plan,
        members: Crew,
        options: RunOptions,
    ) -> None:
        self.fleet: Fleet = choose_fleet(experiment, allocator, layout, options.datapath)
        self._experiment = experiment
        self._layout = layout
        self._crew = members
        self._links = options.make_links()
        self._once = options.once
        self._flows: list[Flow] = []
        self._happened: list[Event] = []
        self._senders: dict[str, Child] = {}
        self._sampler: Child
        self._receiver: Child
        self._web: Web
        self._udp: UdpSources
        self._callers: Child | None = None

    async def prepare(self, state: Path, seed: int, progress: Progress) -> None:
        """Start all processes; they then wait for the start time."""
        layout = self._layout
        wan = netns.namespace(WAN)
        progress.step("starting the links")
        await self._links.start(self._crew, wan, layout.links)
        rng = random.Random(seed)
        flows_of = {
            group.name: self._experiment.flows(group, rng) for group in self._experiment.groups
        }
        self._flows = [flow for flows in flows_of.values() for flow in flows]
        self._receiver = await self._crew.start_module(
            "receiver",
            netns.namespace(SINK),
            "traffic",
            {
                "port": TRAFFIC_PORT,
                "step_ns": STEP_NS,
                "duration_ns": self._experiment.duration_ns,
                "flows": len(self._flows),
                "window": self._experiment.table.window,
            },
            "receive",
        )
        self._sampler = await self._crew.start_module(
            "sampler",
            wan,
            "measure",
            {
                "interval_ns": SAMPLE_NS,
                "duration_ns": self._experiment.duration_ns,
                "counters": _counters(layout),
            },
        )
        for group in self._experiment.groups:
            self._senders[group.name] = await self._crew.start_module(
                f"sender {group.name}",
                netns.namespace(layout.senders[group.name]),
                "traffic",
                {
                    "source": layout.source_address[group.name],
                    "destination": layout.sink_address[layout.path[group.name]],
                    "destination_port": TRAFFIC_PORT,
                    "congestion": group.table.congestion,
                    "ecn": group.table.ecn,
                    "flows": [
                        {
                            "id": flow.id,
                            "port": FIRST_PORT + index,
                            "start_ns": flow.start_ns,
                            "end_ns": flow.end_ns,
                        }
                        for index, flow in enumerate(flows_of[group.name])
                    ],
                },
                "send",
            )
        self._web = Web(self._experiment, layout, seed)
        await self._web.start(self._crew)
        self._udp = UdpSources(self._experiment, layout, rng)
        await self._udp.start(self._crew)
        if (calls := self._experiment.table.calls) is not None:
            self._callers = await self._crew.start_module(
                "callers",
                netns.namespace(limiter_role(calls.limiter)),
                "callers",
                {
                    "table": calls.model_dump(),
                    "step_ns": SAMPLE_NS,
                    "duration_ns": self._experiment.duration_ns,
                },
            )
        progress.step("starting the limiters")
        await self.fleet.start(self._crew, state)
        for member in self._members():
            await member.receive()
        await self._web.ready()

    def _members(self) -> list[Child]:
        callers = [self._callers] if self._callers else []
        timed = *self._senders.values(), *self._udp.timed(), *callers
        return [self._sampler, self._receiver, *timed]

    async def carry_out(self, progress: Progress) -> Observation:
        """Run the experiment, and collect the observations."""
        duration_s = self._experiment.duration_ns / NS_PER_S
        begin_ns = time.monotonic_ns() + round(_LEAD_S * NS_PER_S)
        begin_unix_s = time.time() + _LEAD_S
        for member in [*self._members(), *self._web.timed()]:
            await member.send({"start_ns": begin_ns})
        cpu = CpuTimes.now()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fleet.follow)
            nursery.start_soon(self._carry_out_events, begin_ns, nursery)
            for member in self._crew.children:
                nursery.start_soon(member.watch)
            for left in range(round(duration_s), 0, -1):
                await _sleep_until(begin_ns + round((duration_s - left) * NS_PER_S))
                progress.countdown(left)
            await _sleep_until(begin_ns + self._experiment.duration_ns)
            nursery.cancel_scope.cancel()
        used = cpu.until(CpuTimes.now())
        progress.step("collecting the results")
        sampled = (await self._sampler.receive(_PATIENCE_S))["result"]
        received = (await self._receiver.receive(_PATIENCE_S))["result"]
        sent = {
            group: (await sender.receive(_PATIENCE_S))["result"]
            for group, sender in self._senders.items()
        }
        disturbances: list[str] = []
        disturbed = disturbances.append if self._once else refused
        web = await self._web.report(_PATIENCE_S, disturbed)
        udp = await self._udp.report(_PATIENCE_S, disturbed)
        asked = (await self._callers.receive(_PATIENCE_S))["result"] if self._callers else None
        limiters = await self.fleet.report()
        link = await self._links.stop()
        late_ns = worst_lateness(sampled["times_ns"], SAMPLE_NS)
        for problem in (link.problem() if link else None, lateness_problem(late_ns, SAMPLE_NS)):
            if problem:
                disturbed(problem)
        return Observation(
            flows=tuple(self._flows),
            sent=sent,
            received=received,
            times_s=[time_ns / NS_PER_S for time_ns in sampled["times_ns"]],
            counters=sampled["values"],
            sampler_worst_ms=late_ns / 1e6,
            disturbances=tuple(disturbances),
            events=tuple(self._happened),
            local_limits=self._traced("local_limit_bps", begin_unix_s, duration_s),
            limits_in_force=self._traced("limit_in_force_bps", begin_unix_s, duration_s),
            limiters=limiters,
            link={"backend": self._links.name, **(asdict(link) if link else {})},
            cpu=used,
            believed=believed.from_ticks(self._shared(begin_unix_s), duration_s),
            web=web,
            udp=udp,
            calls=asked,
        )

    async def _carry_out_events(self, begin_ns: int, nursery: trio.Nursery) -> None:
        """Carry out the events, and record their times."""
        for event in self._experiment.events:
            await _sleep_until(begin_ns + event.at_ns)
            now_ns = time.monotonic_ns() - begin_ns
            self._happened.append(replace(event, at_ns=now_ns))
            do = event.do
            if do.flows is not None:
                self._links.set_rate(data_device(do.flows), do.rate, do.queue)
            if do.limit is not None:
                nursery.start_soon(self.fleet.set_limit, do.limit)
            if do.kill is not None:
                self.fleet.kill(do.kill)
            if do.start is not None:
                nursery.start_soon(self.fleet.revive, do.start)

    def _traced(
        self, key: str, begin_unix_s: float, duration_s: float
    ) -> dict[str, list[tuple[float, float | None]]]:
        """A figure of each limiter's trace, by time from the start of the run.

        Raises:
            MeasurementError: a daemon's trace has a gap.
        """
        longest_s = _TRACE_GAP_S + self._experiment.table.gossip.interval / NS_PER_S
        found = {}
        for limiter, ticks in self.fleet.traces.items():
            series = [(tick["t"] - begin_unix_s, tick[key]) for tick in ticks]
            times = [0.0, *(t for t, _ in series if 0 < t < duration_s), duration_s]
            absences = [
                (since_s - begin_unix_s, until_s - begin_unix_s)
                for since_s, until_s in self.fleet.absences.get(limiter, [])
            ]
            gap_s = max(_silences(times, absences))
            if gap_s > longest_s:
                raise MeasurementError(f"daemon {limiter} was silent for {gap_s:.1f} s")
            found[limiter] = series
        return found

    def _shared(self, begin_unix_s: float) -> dict[str, list[tuple[float, float, float]]]:
        """(time, own value, believed sum of the others' values) of each limiter's ticks."""
        return {
            limiter: [(tick["t"] - begin_unix_s, tick["local"], tick["remote"]) for tick in ticks]
            for limiter, ticks in self.fleet.traces.items()
            if limiter not in self.fleet.absences
        }


def _silences(times_s: Sequence[float], absences: Sequence[tuple[float, float]]) -> Iterator[float]:
    """Durations of the gaps, without planned absences."""
    for before, after in itertools.pairwise(times_s):
        absent = sum(max(min(until, after) - max(since, before), 0.0) for since, until in absences)
        yield after - before - absent


async def _sleep_until(when_ns: int) -> None:
    await trio.sleep(max(when_ns - time.monotonic_ns(), 0) / NS_PER_S)


def _counters(layout: Plan) -> list[dict[str, str]]:
    """The counters to sample: forwarded at the sink, arrived and gossip at the limiters."""
    sink = netns.namespace(SINK)
    counters = []
    for limiter in layout.limiters:
        inside = netns.namespace(limiter_role(limiter))
        groups = [
            group
            for group, through in layout.path.items()
            if through == limiter and layout.senders[group] == source_role(group)
        ]
        counters += [
            _counter(f"forwarded/{limiter}", sink, sink_device(limiter), "rx"),
            _counter(f"gossip/{limiter}", inside, "ctl", "tx"),
            *(_counter(f"arrived/{limiter}/{group}", inside, group, "rx") for group in groups),
        ]
    return counters


def _counter(key: str, namespace: str, device: str, direction: str) -> dict[str, str]:
    return {"key": key, "namespace": namespace, "device": device, "direction": direction}
