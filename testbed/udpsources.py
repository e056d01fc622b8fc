"""The UDP traffic of a run: one process sends for all sources, and one counts in the sink."""

from __future__ import annotations

from random import Random
from typing import Any

from testbed import netns
from testbed.crew import Child, Crew
from testbed.errors import DisturbedError
from testbed.experiment import NS_PER_S, STEP_NS, Experiment
from testbed.topology import SINK, TRAFFIC_PORT, WAN, Plan, source_role
from testbed.udprecord import UdpReport

LATE_NS = 50_000_000
"""A packet that was sent later than this fails the run."""


class UdpSources:
    """Sources and their counter; nothing at all for an experiment without."""

    def __init__(self, experiment: Experiment, layout: Plan, rng: Random) -> None:
        """`rng` decides when the sources begin, and comes after what starts the TCP flows."""
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
        """The processes that say when they are ready, and have to be told the start time."""
        return self._processes

    async def report(self, timeout_s: float) -> tuple[UdpReport, ...]:
        """What became of the sources' packets.

        Raises:
            DisturbedError: a packet was sent more than 50 ms late.
        """
        if not self._processes:
            return ()
        sent, received = [
            (await process.receive(timeout_s))["result"] for process in self._processes
        ]
        if sent["late_ns"] > LATE_NS:
            raise DisturbedError(
                f"a UDP packet was sent {sent['late_ns'] / 1e6:.0f} ms late "
                f"(at most {LATE_NS / 1e6:.0f} ms)"
            )
        return self._reports(sent["sent"], received)

    def _reports(self, sent: list[int], received: list[dict[str, Any]]) -> tuple[UdpReport, ...]:
        counted = {(item["address"], item["source"]): item["bytes"] for item in received}
        nothing = [0] * (self._duration_ns // STEP_NS)
        packets = iter(sent)
        return tuple(
            UdpReport(
                source.id, source.limiter, group.table.size,
                group.table.start / NS_PER_S, source.end_ns / NS_PER_S, next(packets),
                tuple(counted.get((self._layout.source_address[group.name], number), nothing)),
            )
            for group, sources in zip(self._groups, self._sources, strict=True)
            for number, source in enumerate(sources)
        )  # fmt: skip
