"""The web traffic of a run: a server in the source of every web group, all clients in the sink."""

from __future__ import annotations

from collections.abc import Callable

from testbed import netns
from testbed.crew import Child, Crew
from testbed.experiment import Experiment
from testbed.experiment_tables import STEP_NS
from testbed.topology import SINK, Plan, source_role
from testbed.webclient import SERVER_PORT
from testbed.webrecord import SiteReport, site_report


class Web:
    """Servers and clients; no process for an experiment without web traffic."""

    def __init__(self, experiment: Experiment, layout: Plan, seed: int) -> None:
        """`seed` decides the requests and their times; it must be the same for every allocator."""
        self._experiment = experiment
        self._layout = layout
        self._seed = seed
        self._arrivals = {
            group.name: group.arrivals(experiment.duration_ns, seed) for group in experiment.web
        }
        self._servers: list[Child] = []
        self._client: Child | None = None

    async def start(self, crew: Crew) -> None:
        """Start all processes."""
        if not self._experiment.web:
            return
        for group in self._experiment.web:
            self._servers.append(
                await crew.start_module(
                    f"web server {group.name}",
                    netns.namespace(source_role(group.name)),
                    "webserver",
                    {"address": self._layout.source_address[group.name], "port": SERVER_PORT},
                )
            )
        self._client = await crew.start_module(
            "web client", netns.namespace(SINK), "webclient", self._job()
        )

    def _job(self) -> dict[str, object]:
        duration_ns = self._experiment.duration_ns
        return {
            "step_ns": STEP_NS,
            "duration_ns": duration_ns,
            "sites": [
                {
                    "name": group.name,
                    "address": self._layout.source_address[group.name],
                    "port": SERVER_PORT,
                    "sizes": group.table.sizes.model_dump(),
                    "arrivals": [
                        (request.start_ns, request.size) for request in self._arrivals[group.name]
                    ],
                    "clients": [
                        {"seed": group.client_seed(self._seed, number), "spans": spans}
                        for number, spans in enumerate(group.clients(duration_ns))
                    ],
                }
                for group in self._experiment.web
            ],
        }

    async def ready(self) -> None:
        """Wait until all processes are ready."""
        for member in [*self._servers, *self.timed()]:
            await member.receive()

    def timed(self) -> list[Child]:
        """The processes that need the start time."""
        return [] if self._client is None else [self._client]

    async def report(
        self, timeout_s: float, disturbed: Callable[[str], None]
    ) -> tuple[SiteReport, ...]:
        """The reports on all requests; `disturbed` is called if they were late.

        Raises:
            MeasurementError: a request broke, or the arrivals were not those of the plan.
        """
        if self._client is None:
            return ()
        told = (await self._client.receive(timeout_s))["result"]
        return tuple(
            site_report(
                group.name,
                group.limiter,
                self._arrivals[group.name],
                site,
                open_loop=group.open_loop,
                disturbed=disturbed,
            )
            for group, site in zip(self._experiment.web, told, strict=True)
        )
