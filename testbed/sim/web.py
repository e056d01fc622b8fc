"""A web server and its clients, with the requests of `testbed.workload`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from drld.model import FlowId
from testbed.experiment_tables import STEP_NS
from testbed.sim.download import Download
from testbed.tcp.clock import Clock
from testbed.tcp.stream import Path
from testbed.webrecord import SiteReport, site_report
from testbed.workload import WebGroup


class Site:
    """One web group."""

    def __init__(
        self,
        clock: Clock,
        group: WebGroup,
        path: Path,
        run_ns: tuple[int, int],
        *,
        seed: int,
        new_flow: Callable[[], FlowId],
    ) -> None:
        """Send requests at the group's times; `run_ns`: begin and end of the run."""
        duration_ns = run_ns[1] - run_ns[0]
        self._clock = clock
        self._group = group
        self._path = path
        self._begin_ns = run_ns[0]
        self._new_flow = new_flow
        self._steps = [0] * (duration_ns // STEP_NS)
        self._downloads: list[Download] = []
        self._planned = group.arrivals(duration_ns, seed)
        for request in self._planned:
            clock.at(run_ns[0] + request.start_ns, self.ask, request.size)
        for number, spans in enumerate(group.clients(duration_ns)):
            client = _Client(self, Random(group.client_seed(seed, number)))
            for begin_ns, end_ns in spans:
                clock.at(run_ns[0] + begin_ns, client.work)
                clock.at(run_ns[0] + end_ns, client.rest)

    def ask(self, size: int, done: Callable[[], None] | None = None) -> Download:
        """Begin a download of `size` bytes; `done` is called at its end."""

        def told(download: Download, count: int) -> None:
            step = (self._clock.now_ns - self._begin_ns) // STEP_NS
            if step < len(self._steps):
                self._steps[step] += count
            if download.end_ns is not None and done is not None:
                done()

        download = Download(self._clock, self._new_flow(), self._path, size, told)
        self._downloads.append(download)
        return download

    def draw(self, rng: Random) -> int:
        """Size of an object."""
        return self._group.table.sizes.draw(rng)

    def report(self) -> SiteReport:
        """The reports on all requests, in the form of the testbed's client."""
        fetches: list[list[Any]] = [
            [
                download.start_ns - self._begin_ns,
                None if download.end_ns is None else download.end_ns - self._begin_ns,
                download.size,
                download.received,
                None,
            ]
            for download in self._downloads
        ]
        told = {"fetches": fetches, "steps": self._steps}
        group = self._group
        return site_report(
            group.name, group.limiter, self._planned, told, open_loop=group.open_loop
        )


class _Client:
    """A client of a closed loop: asks for one object after another while it has work."""

    def __init__(self, site: Site, rng: Random) -> None:
        self._site = site
        self._rng = rng
        self._download: Download | None = None
        self._working = False

    def work(self, _: object) -> None:
        self._working = True
        self._next()

    def rest(self, _: object) -> None:
        self._working = False
        if self._download is not None:
            self._download.abort()

    def _next(self) -> None:
        if self._working:
            self._download = self._site.ask(self._site.draw(self._rng), self._next)
