"""UDP traffic as data: sources that send at their own pace, whatever becomes of it. Pure.

A source sends `burst` packets at a time, back to back (one unless given): at a constant `rate` of
IP bytes, or every `period`. With `on` and `off` it sends for so long, is silent for so long, and so
on. What is called a trickle is a source of a small packet now and then.

Each source begins at random within the first interval between two of its bursts, so that sources of
one group do not send at the same moments; the seed decides, and it is the same for every allocator.

A flow is an address and a port, so `ports = "each-packet"` makes each packet a new flow.

Units: rates bytes/s, sizes bytes, times nanoseconds from the start of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from drld.config.fields import Rate
from drld.config.problems import Problems
from testbed import MTU
from testbed.fields import Duration, Name, Places, Probability, Size, Table, spread_out

UDP_HEADERS = 28
"""Bytes of IP and UDP header in each packet."""
FIRST_PORT, PORTS = 1024, 64_512
"""The ports that the sources of a group send from."""
_NS_PER_S = 1_000_000_000
_MOST_BURST = 10_000


class UdpTable(Table):
    """An entry of `[[udp]]`: a group of sources that are alike."""

    name: Name | None = None
    limiter: Places
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    rate: Rate | None = None
    """Of each source."""
    period: Duration | None = None
    size: Size = MTU
    """Of the IP packet."""
    burst: Annotated[int, Field(ge=1, le=_MOST_BURST)] = 1
    on: Duration | None = None
    off: Duration | None = None
    ports: Literal["one", "each-packet"] = "one"
    start: Duration = 0
    end: Duration | None = None
    rtt: Duration = 0
    """Of the path: packets come to the limiter half of it after they were sent."""
    loss: Probability = 0.0


@dataclass(frozen=True, slots=True)
class UdpSource:
    """One source."""

    id: str
    group: str
    limiter: str
    start_ns: int
    """When it sends its first burst."""
    end_ns: int


@dataclass(frozen=True, slots=True)
class UdpGroup:
    """A group of sources, with everything filled in."""

    name: str
    limiter: str
    table: UdpTable

    @property
    def interval_ns(self) -> int:
        """From one burst to the next."""
        table = self.table
        if table.period is not None:
            return table.period
        assert table.rate is not None
        return table.burst * table.size * _NS_PER_S // table.rate

    @property
    def rate_bps(self) -> float:
        """What a source sends while it is on, bits/s of the IP layer."""
        return self.table.burst * self.table.size * 8 * _NS_PER_S / self.interval_ns

    @property
    def packets_per_s(self) -> float:
        """Packets that the group sends in a second while all its sources are on."""
        return self.table.count * self.rate_bps / 8 / self.table.size

    @property
    def mean_bps(self) -> float:
        """The same on average over the times when it is on and off."""
        table = self.table
        if table.on is None or table.off is None:
            return self.rate_bps
        return self.rate_bps * table.on / (table.on + table.off)

    def sources(self, duration_ns: int, rng: Random) -> list[UdpSource]:
        """Those of the group."""
        table = self.table
        end_ns = duration_ns if table.end is None else min(table.end, duration_ns)
        starts = [table.start + rng.randrange(self.interval_ns) for _ in range(table.count)]
        return [
            UdpSource(f"{self.name}.{number}", self.name, self.limiter, start_ns, end_ns)
            for number, start_ns in enumerate(starts, 1)
        ]

    def port(self, source: int, packet: int) -> int:
        """Port that a source sends a packet from; both are counted from 0.

        No two sources of the group share a port, as long as there are at most `PORTS` of them.
        """
        count = self.table.count
        turn = packet % (PORTS // count) if self.table.ports == "each-packet" else 0
        return FIRST_PORT + turn * count + source

    def source_of(self, port: int) -> int:
        """Which source sends from a port."""
        return (port - FIRST_PORT) % self.table.count

    def next_ns(self, since_ns: int, burst: int) -> tuple[int, int]:
        """When a source sends next.

        Args:
            since_ns: when it began to send: its start, or that of the present time `on`.
            burst: which burst since then comes next, counted from 0.

        Returns:
            The time, and the `since_ns` that goes with it; another one where a time `off` lies
            between, and the burst is then the first since that.
        """
        table = self.table
        at_ns = since_ns + self._after_ns(burst)
        if table.on is None or table.off is None or at_ns - since_ns < table.on:
            return at_ns, since_ns
        since_ns += table.on + table.off
        return since_ns, since_ns

    def _after_ns(self, burst: int) -> int:
        table = self.table
        if table.period is not None:
            return burst * table.period
        assert table.rate is not None
        return burst * table.burst * table.size * _NS_PER_S // table.rate


def udp_groups(tables: Sequence[UdpTable]) -> tuple[UdpGroup, ...]:
    """Fill in names, and make a group for each limiter of an entry."""
    return tuple(
        UdpGroup(name, limiter, table)
        for number, table in enumerate(tables, 1)
        for name, limiter in spread_out(table.name or f"u{number}", table.limiter)
    )


def check_udp(tables: Sequence[UdpTable], problems: Problems) -> None:
    """What concerns several keys at once."""
    for index, table in enumerate(tables):
        where: list[int | str] = ["udp", index]
        if (table.rate is None) == (table.period is None):
            problems.add(where, "needs either `rate` or `period`")
        elif table.period == 0:
            problems.refuse([*where, "period"], "0s", "longer than nothing")
        if not UDP_HEADERS <= table.size <= MTU:
            problems.add([*where, "size"], f"needs {UDP_HEADERS} to {MTU} bytes of IP packet")
        if (table.on is None) != (table.off is None) or 0 in (table.on, table.off):
            problems.add([*where, "on"], "needs `off` beside it, and both longer than nothing")
        if table.end is not None and table.end <= table.start:
            problems.add([*where, "end"], "not after the start")
