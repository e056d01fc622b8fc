"""A UDP source: sends at its times, and counts the packets that pass its limiter."""

from __future__ import annotations

from collections.abc import Callable

from drld.model import FlowId
from testbed.datagrams import UDP_HEADERS, UdpGroup, UdpSource
from testbed.experiment_tables import NS_PER_S, STEP_NS
from testbed.tcp.clock import Clock
from testbed.tcp.stream import Path
from testbed.udprecord import UdpReport


class UdpSender:
    """One source."""

    def __init__(
        self,
        clock: Clock,
        group: UdpGroup,
        source: UdpSource,
        path: Path,
        *,
        run_ns: tuple[int, int],
        new_flow: Callable[[], FlowId],
    ) -> None:
        """Send at the source's times; `run_ns` are the begin and the end of the run."""
        self._clock = clock
        self._group = group
        self._source = source
        self._path = path
        self._begin_ns = run_ns[0]
        self._new_flow = new_flow
        self._flow_id = new_flow()
        self._steps = [0] * ((run_ns[1] - run_ns[0]) // STEP_NS)
        self._sent = 0
        self._bursts = group.bursts(source.start_ns, source.end_ns)
        self._wait()

    def report(self) -> UdpReport:
        """A report on the source's packets."""
        source = self._source
        return UdpReport(
            source.id, source.limiter, self._group.table.size,
            self._group.table.start / NS_PER_S, source.end_ns / NS_PER_S, self._sent,
            tuple(self._steps),
        )  # fmt: skip

    def _wait(self) -> None:
        """Wait for the time of the next burst."""
        at_ns = next(self._bursts, None)
        if at_ns is not None:
            self._clock.at(self._begin_ns + at_ns, self._send)

    def _send(self, _: object) -> None:
        table = self._group.table
        for _packet in range(table.burst):
            if table.ports == "each-packet":
                self._flow_id = self._new_flow()
            self._sent += 1
            self._path.there.send(table.size, self._arrives, self._flow_id)
        self._wait()

    def _arrives(self, flow_id: FlowId) -> None:
        """A packet reaches the limiter."""
        size = self._group.table.size
        if self._path.host.passes(flow_id, size):
            step = (self._clock.now_ns - self._begin_ns) // STEP_NS
            if step < len(self._steps):
                self._steps[step] += size - UDP_HEADERS
