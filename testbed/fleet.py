"""The limiters of a run: real daemons, or the kernel's token bucket filter as a comparison."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import trio

from drld import units
from testbed import netns
from testbed.calls import request_tables
from testbed.crew import Crew
from testbed.daemon import Daemon
from testbed.errors import HostError
from testbed.experiment import Experiment
from testbed.experiment_tables import CENTRAL, PAPER
from testbed.link import SIZE_TABLE, tbf_arguments
from testbed.topology import GOSSIP_PORT, Plan, limiter_role

LIMIT = "experiment"
DATAPATHS = ("auto", "kernel", "nfqueue", "tbf")

_REQUEST_TIMEOUT_S = 5.0
_TBF_QUEUE = 3_000
"""Queue in bytes: almost none, so that the filter polices and does not shape."""


@dataclass(slots=True)
class FleetReport:
    """The limiters' report after a run."""

    datapath: str
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    """The datapaths' counts of failures, by limiter."""
    sent: int = 0
    """Number of gossip messages of all limiters."""
    received: int = 0
    lost: int = 0
    costs: dict[str, dict[str, float]] = field(default_factory=dict)
    """Costs of each daemon that lived all the time (`Daemon.cost`)."""


def choose_fleet(experiment: Experiment, allocator: str, layout: Plan, datapath: str) -> Fleet:
    """Daemons, or TBF if the datapath is `tbf`.

    Raises:
        HostError: TBF does not have this allocator.
    """
    if datapath == "tbf":
        return TbfFleet(experiment, allocator, layout)
    return DaemonFleet(experiment, allocator, layout, datapath)


class DaemonFleet:
    """A daemon in the namespace of every limiter."""

    def __init__(self, experiment: Experiment, allocator: str, layout: Plan, datapath: str) -> None:
        self._documents = {
            limiter: daemon_document(experiment, allocator, layout, limiter, datapath)
            for limiter in layout.limiters
        }
        self._daemons: dict[str, Daemon] = {}
        self._dead: set[str] = set()
        self._crew: Crew
        self.traces: dict[str, list[dict[str, Any]]] = {name: [] for name in layout.limiters}
        """The ticks of each limiter: at least `t` (unix time, s), `local_limit_bps`,
        `limit_in_force_bps`, and what is shared, `local` and `remote`."""
        self.absences: dict[str, list[tuple[float, float]]] = {}
        """Planned absences of a limiter: (from, to), unix time, s."""
        self._begun: dict[str, tuple[float, float]] = {}
        """The clock from which a daemon's costs count, by daemon."""

    async def start(self, crew: Crew, state: Path) -> None:
        """Start limiting; return when all limiters are ready and connected."""
        self._crew = crew
        for limiter, document in self._documents.items():
            namespace = netns.namespace(limiter_role(limiter))
            self._daemons[limiter] = Daemon(document, state, namespace)
            self._daemons[limiter].launch(crew)
        for daemon in self._daemons.values():
            await daemon.ready()

    async def follow(self) -> None:
        """Collect the traces until cancelled."""
        self._begun = {limiter: daemon.clock() for limiter, daemon in self._daemons.items()}
        async with trio.open_nursery() as nursery:
            for limiter in self._daemons:
                nursery.start_soon(self._follow, limiter)

    async def _follow(self, limiter: str) -> None:
        daemon = self._daemons[limiter]
        try:
            async with (
                daemon.client(_REQUEST_TIMEOUT_S) as client,
                client.stream("GET", f"/v1/limits/{LIMIT}/trace") as response,
            ):
                response.raise_for_status()
                async for line in response.aiter_lines():
                    self.traces[limiter].append(json.loads(line))
        except httpx.HTTPError as error:
            if limiter in self._dead:
                return
            raise await daemon.process.failure(f"broke off its trace: {error}") from error
        if limiter not in self._dead:
            raise await daemon.process.failure("ended its trace in the middle of the run")

    async def set_limit(self, rate: int) -> None:
        """Change the limit, bytes/s; return when it is in force on all.

        It is done like an operator, with another configuration and a reload.
        """
        for daemon in self._daemons.values():
            daemon.document["limit"][0]["rate"] = units.format_rate(rate)
            daemon.write()
        async with trio.open_nursery() as nursery:
            for limiter in self._daemons.keys() - self._dead:
                nursery.start_soon(self._reload, self._daemons[limiter])

    async def _reload(self, daemon: Daemon) -> None:
        try:
            async with daemon.client(_REQUEST_TIMEOUT_S) as client:
                (await client.post("/v1/reload")).raise_for_status()
        except httpx.HTTPError as error:
            raise await daemon.process.failure(f"did not reload: {error}") from error

    def kill(self, limiter: str) -> None:
        """Kill a limiter's daemon."""
        self._dead.add(limiter)
        self.absences.setdefault(limiter, []).append((time.time(), float("inf")))
        self._daemons[limiter].process.kill()

    async def revive(self, limiter: str) -> None:
        """Start a killed daemon again, and follow it until cancelled."""
        daemon = self._daemons[limiter]
        daemon.launch(self._crew)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(daemon.process.watch)
            await daemon.ready(peers_too=False)
            self._dead.discard(limiter)
            since, _ = self.absences[limiter].pop()
            self.absences[limiter].append((since, time.time()))
            await self._follow(limiter)
            nursery.cancel_scope.cancel()

    async def report(self) -> FleetReport:
        """Ask the limiters for their report."""
        report = FleetReport(datapath="")
        for limiter, daemon in self._daemons.items():
            if limiter in self._dead:
                continue
            try:
                async with daemon.client(_REQUEST_TIMEOUT_S) as client:
                    status = (await client.get("/v1/status")).raise_for_status().json()
                    peers = (await client.get("/v1/peers")).raise_for_status().json()
            except httpx.HTTPError as error:
                raise await daemon.process.failure(f"does not answer: {error}") from error
            report.datapath = status["datapath"]["name"]
            report.counters[limiter] = status["datapath"]["counters"]
            report.sent += status["gossip"]["sent"]
            report.received += status["gossip"]["received"]
            report.lost += sum(peer["lost"] for peer in peers)
            if limiter not in self.absences:
                report.costs[limiter] = daemon.cost(self._begun[limiter])
        return report


class TbfFleet:
    """The kernel's token bucket filter instead of daemons: central, or a static split."""

    def __init__(self, experiment: Experiment, allocator: str, layout: Plan) -> None:
        if allocator not in ("ctb", "static"):
            raise HostError(f"datapath tbf can do ctb and static, not {allocator}")
        self._limit = experiment.table.limit
        self._layout = layout
        self.traces: dict[str, list[dict[str, Any]]] = {}
        self.absences: dict[str, list[tuple[float, float]]] = {}

    async def start(self, crew: Crew, state: Path) -> None:  # noqa: ARG002 -- no process of ours
        """See `DaemonFleet`."""
        await self.set_limit(self._limit.rate)

    async def set_limit(self, rate: int) -> None:
        """See `DaemonFleet`."""
        equal = 1 / len(self._layout.limiters)
        for limiter in self._layout.limiters:
            # The central limiter is not a configured one: the whole limit is its share.
            share = self._limit.shares.get(limiter, equal)
            arguments = tbf_arguments(
                max(round(rate * share), 1),
                _TBF_QUEUE,
                round(self._limit.burst * share),
            )
            namespace = netns.namespace(limiter_role(limiter))
            netns.run(
                [
                    *("tc", "-netns", namespace, "qdisc", "replace", "dev", "out", "root"),
                    *(*SIZE_TABLE, *arguments),
                ]
            )

    async def follow(self) -> None:
        """See `DaemonFleet`; the filter has no traces."""

    def kill(self, limiter: str) -> None:
        """See `DaemonFleet`."""
        raise HostError(f"datapath tbf has no daemon {limiter} to kill")

    async def revive(self, limiter: str) -> None:
        """See `DaemonFleet`."""
        raise HostError(f"datapath tbf has no daemon {limiter} to start")

    async def report(self) -> FleetReport:
        """See `DaemonFleet`."""
        return FleetReport(datapath="tbf")


Fleet: TypeAlias = DaemonFleet | TbfFleet


def daemon_document(
    experiment: Experiment, allocator: str, layout: Plan, limiter: str, datapath: str
) -> dict[str, Any]:
    """The configuration of one daemon, as a TOML document."""
    limit, gossip = experiment.table.limit, experiment.table.gossip
    central = allocator in CENTRAL
    algorithm = CENTRAL.get(allocator, allocator)
    optional = {
        "ewma": limit.ewma,
        "shares": None if central else limit.shares or None,
        "weights": None if central else limit.weights or None,
        "on_failure": limit.on_failure,
        "interval": None if limit.interval is None else units.format_duration(limit.interval),
        "excess": limit.excess,
        "flow": limit.flow,
    }
    document: dict[str, Any] = {
        "limiter": {
            "name": limiter,
            "listen": f"{layout.gossip_address[limiter]}:{GOSSIP_PORT}",
        },
        "packets": {"datapath": datapath},
        "gossip": {
            "fabric": gossip.fabric,
            **({"branching": gossip.branching} if gossip.branching else {}),
            "interval": units.format_duration(gossip.interval),
        },
        "peer": [
            {"name": peer, "address": f"{layout.gossip_address[peer]}:{GOSSIP_PORT}"}
            for peer in layout.limiters
            if peer != limiter
        ],
        "limit": [
            {
                "id": 1,
                "name": LIMIT,
                "rate": units.format_rate(limit.rate),
                "burst": units.format_size(limit.burst),
                "allocator": {
                    "name": algorithm,
                    **PAPER.get(algorithm, {}),
                    **limit.parameters.get(algorithm, {}),
                },
                "match": {"out": "out", **({} if experiment.udp else {"protocol": "tcp"})},
                **{key: value for key, value in optional.items() if value is not None},
            }
        ],
    }
    calls = experiment.table.calls
    if calls is not None and calls.limiter == limiter:
        document |= request_tables(document["limit"][0])
    return document
