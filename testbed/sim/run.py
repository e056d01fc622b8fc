"""One simulated run: from an experiment to its record in result.json."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from socket import IPPROTO_TCP, IPPROTO_UDP
from typing import Any

from drld.daemon.limit_report import local_limit_bps
from drld.errors import ConfigError
from drld.limiter import Tick
from drld.model import NS_PER_S, FlowId, FlowKey
from testbed import MTU
from testbed.believed import BelievedTotal, error_of
from testbed.datagrams import UdpGroup
from testbed.events import EventTable
from testbed.experiment import Experiment, Group
from testbed.fleet import FleetReport
from testbed.link import queue_bytes
from testbed.record import FLEET, Observation, record
from testbed.sim.connection import Connection
from testbed.sim.fleet import Fleet, run_limiters
from testbed.sim.host import Host
from testbed.sim.udp_source import UdpSender
from testbed.sim.web import Site
from testbed.tcp.clock import Clock
from testbed.tcp.link import Link
from testbed.tcp.stream import Path
from testbed.tcp.timer import JIFFY_NS
from testbed.topology import Plan
from testbed.workload import WebGroup

SAMPLE_NS = 50_000_000
_LEAD_NS = 3_600 * NS_PER_S
"""Start time of the run, so that earlier events can have times, too."""
_FIRST_PORT = 20_000
_FIRST_ADDRESS = 10 << 24
"""10.0.0.0; sources have consecutive addresses."""
_ERROR_SAMPLES = 20
"""One of this many samples measures the limiters' errors."""


def simulate(experiment: Experiment, allocator: str, repetition: int = 1) -> dict[str, Any]:
    """Carry out one run and return its record (docs/testbed.md).

    The same arguments give the same record.

    Raises:
        ConfigError: drld or the simulator lacks a feature of the experiment.
        MeasurementError: nothing was forwarded.
    """
    run = Simulation(experiment, allocator, repetition)
    with _no_collection():
        run.carry_out()
    return record(experiment, allocator, repetition, run.layout, run.observation())


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Switch the garbage collector off: a fleet has millions of objects that all stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Simulation:
    """A run in the making; `carry_out` makes it."""

    def __init__(self, experiment: Experiment, allocator: str, repetition: int) -> None:
        refuse(experiment)
        # Start times are the same for every allocator, and the same on the testbed.
        seed = experiment.table.seed * 1000 + repetition
        limiters = run_limiters(experiment, allocator)
        self._in_detail = experiment.table.detail == "limiters"
        central = limiters != experiment.limiters
        self.layout = Plan(
            veths=(), commands={}, links=(), limiters=limiters, sink_address={}, gossip_address={},
            path={
                source.name: limiters[0] if central else source.limiter
                for source in (*experiment.sources, *experiment.udp)
            },
            source_address={source.name: source.name for source in experiment.sources},
        )  # fmt: skip
        self._experiment = experiment
        self._clock = Clock(_LEAD_NS)
        self.fleet = Fleet(experiment, allocator, self._clock, seed)
        self._begin_ns = _LEAD_NS + max(self.fleet.settling_ns, NS_PER_S)
        self._end_ns = self._begin_ns + experiment.duration_ns
        self._hosts = {host.name: host for host in self.fleet.hosts}
        self._local_limits: dict[str, list[tuple[float, float | None]]] = {}
        self._limits_in_force: dict[str, list[tuple[float, float | None]]] = {}
        if self._in_detail:
            for host in self.fleet.hosts:
                self._local_limits[host.name] = []
                self._limits_in_force[host.name] = []
                host.watch = self._note_limit
        self._there: dict[str, Link] = {}
        self.connections: dict[str, list[Connection]] = {}
        starts, noise = Random(seed), Random(f"{seed}/links")
        self._flow_ids = 0
        self._addresses = itertools.count(_FIRST_ADDRESS)
        run_ns = self._begin_ns, self._end_ns
        for group in experiment.groups:
            path, new_flow = self._path(group, noise), self._flows_of(group)
            self.connections[group.name] = [
                Connection(self._clock, flow, new_flow(), path, run_ns)
                for flow in experiment.flows(group, starts)
            ]
        self.sites = [
            Site(
                self._clock,
                web,
                self._path(web, noise),
                run_ns,
                seed=seed,
                new_flow=self._flows_of(web),
            )
            for web in experiment.web
        ]
        # UDP sources come last, so that an experiment without them draws the same numbers.
        self.udp: list[UdpSender] = []
        for udp in experiment.udp:
            way, new_flow = self._udp_path(udp, noise), self._flows_of(udp)
            self.udp += [
                UdpSender(self._clock, udp, source, way, run_ns=run_ns, new_flow=new_flow)
                for source in udp.sources(experiment.duration_ns, starts)
            ]
        self._times_s: list[float] = []
        self._believed = BelievedTotal([], [])
        self._counters: dict[str, list[int]] = {
            f"{kind}/{name}": []
            for name in (limiters if self._in_detail else (FLEET,))
            for kind in ("forwarded", "gossip", "arrived")
        }

    def _path(self, source: Group | WebGroup, rng: Random) -> Path:
        """Make the links of a group."""
        table = source.table
        there = Link(self._clock, table.rtt // 2, rng, table.loss)
        back = Link(self._clock, table.rtt // 2, rng)
        if table.rate is not None:
            there.set_rate(table.rate, queue_bytes(table.rate, table.queue, table.rtt))
        self._there[source.name] = there
        host = self._hosts[self.layout.path[source.name]]
        window = self._experiment.table.window
        path = Path(there, back, host, phase_ns=rng.randrange(JIFFY_NS), window=window)
        if not isinstance(source, Group):
            return path
        flows = source.table
        return replace(path, congestion=flows.congestion, ecn=flows.ecn, gso=flows.gso)

    def _udp_path(self, source: UdpGroup, rng: Random) -> Path:
        """Make the link of a group of UDP sources; it has no way back."""
        table = source.table
        there = Link(self._clock, table.rtt // 2, rng, table.loss)
        host = self._hosts[self.layout.path[source.name]]
        return Path(there, there, host, phase_ns=0)

    def _flows_of(self, source: Group | WebGroup | UdpGroup) -> Callable[[], FlowId]:
        """Return a function that makes a source's flows: five-tuples if the limit has `flow`."""
        if self._experiment.table.limit.flow is None:
            return self._new_flow
        address = next(self._addresses).to_bytes(4, "big")
        destination = bytes(4)
        protocol = IPPROTO_UDP if isinstance(source, UdpGroup) else IPPROTO_TCP

        def new_flow() -> FlowId:
            return FlowKey(protocol, address, destination, *divmod(self._new_flow(), 1 << 16))

        return new_flow

    def _new_flow(self) -> int:
        self._flow_ids += 1
        return self._flow_ids

    def carry_out(self) -> None:
        """Run until the end."""
        clock = self._clock
        self.fleet.start()
        for event in self._experiment.events:
            clock.at(self._begin_ns + event.at_ns, self._carry_out, event.do)
        clock.run(self._begin_ns - SAMPLE_NS)
        self._sample()
        while clock.now_ns < self._end_ns:
            clock.run(min(clock.now_ns + SAMPLE_NS, self._end_ns))
            self._sample()
        clock.now_ns += SAMPLE_NS
        # One more sample without events, so that the end lies between two samples.
        self._sample()

    def _carry_out(self, do: EventTable) -> None:
        if do.flows is not None:
            link, rate = self._there[do.flows], do.rate
            round_trip_ns = 2 * link.delay_ns
            link.set_rate(rate, 0 if rate is None else queue_bytes(rate, do.queue, round_trip_ns))
        if do.limit is not None:
            for host in self.fleet.hosts:
                host.set_rate(do.limit)
        if do.kill is not None:
            self._hosts[do.kill].kill()
        if do.start is not None:
            self._hosts[do.start].revive()

    def _sample(self) -> None:
        self._times_s.append((self._clock.now_ns - self._begin_ns) / NS_PER_S)
        hosts, counters = self.fleet.hosts, self._counters
        if self._in_detail:
            for host in hosts:
                counters[f"forwarded/{host.name}"].append(host.forwarded)
                counters[f"arrived/{host.name}"].append(host.arrived)
                counters[f"gossip/{host.name}"].append(host.mailbox.bytes_sent)
        else:
            counters[f"forwarded/{FLEET}"].append(sum(host.forwarded for host in hosts))
            counters[f"arrived/{FLEET}"].append(sum(host.arrived for host in hosts))
            counters[f"gossip/{FLEET}"].append(sum(host.mailbox.bytes_sent for host in hosts))
        if len(self._times_s) % _ERROR_SAMPLES == 1:
            self._note_error()

    def _note_error(self) -> None:
        """The limiters' error about the sum of their shared values."""
        ticks = [host.managed.last for host in self.fleet.hosts]
        error = error_of(
            [(tick.allocation.value, tick.view.remote) for tick in ticks if tick is not None]
        )
        if error is not None:
            self._believed.times_s.append(self._times_s[-1])
            self._believed.errors.append(error)

    def _note_limit(self, host: Host, tick: Tick) -> None:
        when_s = (self._clock.now_ns - self._begin_ns) / NS_PER_S
        self._local_limits[host.name].append((when_s, local_limit_bps(tick)))
        self._limits_in_force[host.name].append((when_s, tick.in_force.rate * 8))

    def observation(self) -> Observation:
        """The run's observations, in the testbed's form."""
        groups = self.connections.items()
        report = FleetReport("simulated")
        for host in self.fleet.hosts:
            report.sent += host.mailbox.sent
            report.received += host.mailbox.received
            links = host.managed.limiter.fabric.links.values()
            report.lost += sum(link.lost for link in links)
        return Observation(
            flows=tuple(connection.flow for _, group in groups for connection in group),
            sent={
                name: [
                    self._sent(_FIRST_PORT + index, item) for index, item in enumerate(connections)
                ]
                for name, connections in groups
            },
            received=[
                {"source": name, "port": _FIRST_PORT + index, "bytes": item.steps}
                for name, connections in groups
                for index, item in enumerate(connections)
                if item.connected_ns is not None
            ],
            times_s=self._times_s,
            counters=self._counters,
            sampler_worst_ms=0.0,
            local_limits=self._local_limits,
            limiters=report,
            link={"backend": "simulated"},
            cpu={},
            web=tuple(site.report() for site in self.sites),
            held_bytes=MTU * sum(item.held for _, group in groups for item in group),
            udp=tuple(source.report() for source in self.udp),
            events=tuple(self._experiment.events),
            limits_in_force=self._limits_in_force,
            believed=self._believed if self._believed.errors else None,
            costs=self.fleet.costs(),
        )

    def _sent(self, port: int, item: Connection) -> dict[str, Any]:
        """The report of a flow, in the form of the testbed's sender."""
        sender = item.sender
        return {
            "id": item.flow.id,
            "port": port,
            "syn_s": self._since_begin(item.syn_ns),
            "connected_s": self._since_begin(item.connected_ns),
            "retransmits": item.retransmits,
            "rtt_ms": None if sender is None else sender.rtt.smoothed_ns / 1e6,
            "error": None,
        }

    def _since_begin(self, when_ns: int | None) -> float | None:
        return None if when_ns is None else (when_ns - self._begin_ns) / NS_PER_S


def refuse(experiment: Experiment) -> None:
    """Check that the simulator has all features of the experiment.

    Raises:
        ConfigError: it lacks one.
    """
    if any(group.table.egress for group in experiment.groups):
        raise ConfigError(["flows.egress: only the testbed has it (python -m testbed)"])
    if experiment.table.calls is not None:
        raise ConfigError(["calls: only the testbed has them (python -m testbed)"])
    if experiment.table.limit.on_failure not in (None, "share"):
        raise ConfigError(["limit.on_failure: a simulated datapath falls back to its share"])
