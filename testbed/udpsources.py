"""The UDP traffic of a run: one process sends for all sources, and one counts in the sink."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from testbed import netns
from testbed.crew import Child, Crew
from testbed.experiment import Experiment
from testbed.experiment_tables import STEP_NS
from testbed.topology import SINK, TRAFFIC_PORT, WAN, Plan, source_role
from testbed.udprecord import UdpReport, udp_reports


class UdpSources:
    """Sources and their counter; no process for an experiment without UDP."""

    def __init__(self, experiment: Experiment, layout: Plan, rng: Random) -> None:
        """`rng` decides when the sources begin, after it has decided the starts of the TCP
        flows."""
        self._duration_ns = experiment.duration_ns
        self._layout = layout
        self._groups = experiment.udp
        self._sources = [group.sources(experiment.duration_ns, rng) for group in self._groups]
        self._processes: list[Child] = []

    async def start(self, crew: Crew) -> None:
        """Start both processes."""
        if not self._groups:
            return
        layout = self._layout
        groups = [
            {
                "table": group.table.model_dump(),
                "namespace": netns.namespace(source_role(group.name)),
                "address": layout.source_address[group.name],
                "destination": layout.sink_address[layout.path[group.name]],
                "destination_port": TRAFFIC_PORT,
                "sources": [
                    {"start_ns": source.start_ns, "end_ns": source.end_ns} for source in sources
                ],
            }
            for group, sources in zip(self._groups, self._sources, strict=True)
        ]
        counting = {
            "port": TRAFFIC_PORT,
            "step_ns": STEP_NS,
            "duration_ns": self._duration_ns,
            "groups": [{key: group[key] for key in ("table", "address")} for group in groups],
        }
        wan, sink = netns.namespace(WAN), netns.namespace(SINK)
        self._processes = [
            await crew.start_module("UDP sender", wan, "udptraffic", {"groups": groups}, "send"),
            await crew.start_module("UDP receiver", sink, "udptraffic", counting, "receive"),
        ]

    def timed(self) -> list[Child]:
        """The processes that report when they are ready, and need the start time."""
        return self._processes

    async def report(
        self, timeout_s: float, disturbed: Callable[[str], None]
    ) -> tuple[UdpReport, ...]:
        """The reports on the sources' packets; `disturbed` is called if one was sent late."""
        if not self._processes:
            return ()
        sent, received = [
            (await process.receive(timeout_s))["result"] for process in self._processes
        ]
        addresses = [self._layout.source_address[group.name] for group in self._groups]
        planned = list(zip(self._groups, addresses, self._sources, strict=True))
        return udp_reports(planned, sent, received, self._duration_ns // STEP_NS, disturbed)
