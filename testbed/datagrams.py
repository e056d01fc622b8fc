"""UDP traffic as data: sources that do not respond to losses. Pure.

A source sends `burst` packets at a time, back to back (default 1): at a constant `rate` of IP
bytes, or every `period`. With `on` and `off` it sends and is silent in turn for these times. A
*trickle* is a source that sends a small packet now and then.

Each source begins at random within its first interval between bursts, so that the sources of a
group do not send at the same moments. The seed decides, and is the same for every allocator.

A flow is an address and a port, so `ports = "each-packet"` makes each packet a new flow.

Units: rates bytes/s, sizes bytes, times nanoseconds from the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
"""The source ports of a group's packets."""
_NS_PER_S = 1_000_000_000
_MOST_BURST = 10_000


class UdpTable(Table):
    """An entry of `[[udp]]`: a group of sources that are alike."""

    name: Name | None = None
    limiter: Places
    count: Annotated[int, Field(ge=1, le=100_000)] = 1
    rate: Rate | None = None
    """IP rate of each source. On the testbed, all together send at most 20,000 packets/s."""
    period: Duration | None = None
    """The time between two bursts, in the place of a rate."""
    size: Size = MTU
    """Length of the IP packet."""
    burst: Annotated[int, Field(ge=1, le=_MOST_BURST)] = 1
    """The packets that are sent at one moment."""
    on: Duration | None = None
    """The time for which a source sends, before it is silent for `off`."""
    off: Duration | None = None
    ports: Literal["one", "each-packet"] = "one"
    """Whether a source has one port, or another one for each packet."""
    start: Duration = 0
    end: Duration | None = None
    rtt: Duration = 0
    """Round-trip time of the path: packets reach the limiter after half of it."""
    loss: Probability = 0.0


@dataclass(frozen=True, slots=True)
class UdpSource:
    """One source of a group, and its sending times."""

    id: str
    group: str
    limiter: str
    start_ns: int
    """Time of the first burst."""
    end_ns: int


@dataclass(frozen=True, slots=True)
class UdpGroup:
    """A group of sources, with all defaults filled in."""

    name: str
    limiter: str
    table: UdpTable

    @property
    def interval_ns(self) -> int:
        """Time between two bursts."""
        table = self.table
        if table.period is not None:
            return table.period
        assert table.rate is not None
        return table.burst * table.size * _NS_PER_S // table.rate

    @property
    def rate_bps(self) -> float:
        """Rate of a source while it is on, bits/s of the IP layer."""
        return self.table.burst * self.table.size * 8 * _NS_PER_S / self.interval_ns

    @property
    def packets_per_s(self) -> float:
        """Packets that the group sends in a second while all its sources are on."""
        return self.table.count * self.rate_bps / 8 / self.table.size

    @property
    def mean_bps(self) -> float:
        """Mean rate of a source over the times `on` and `off`, bits/s."""
        table = self.table
        if table.on is None or table.off is None:
            return self.rate_bps
        return self.rate_bps * table.on / (table.on + table.off)

    def sources(self, duration_ns: int, rng: Random) -> list[UdpSource]:
        """The group's sources."""
        table = self.table
        end_ns = duration_ns if table.end is None else min(table.end, duration_ns)
        starts = [table.start + rng.randrange(self.interval_ns) for _ in range(table.count)]
        return [
            UdpSource(f"{self.name}.{number}", self.name, self.limiter, start_ns, end_ns)
            for number, start_ns in enumerate(starts, 1)
        ]

    def port(self, source: int, packet: int) -> int:
        """The source port of a packet; sources and packets are counted from 0.

        No two sources of the group share a port, as long as there are at most `PORTS` of them.
        """
        count = self.table.count
        turn = packet % (PORTS // count) if self.table.ports == "each-packet" else 0
        return FIRST_PORT + turn * count + source

    def source_of(self, port: int) -> int:
        """The source that sends from a port."""
        return (port - FIRST_PORT) % self.table.count

    def bursts(self, start_ns: int, end_ns: int) -> Iterator[int]:
        """The times of a source's bursts, from its start to its end."""
        on_ns, off_ns = self.table.on, self.table.off
        since_ns, burst = start_ns, 0
        while True:
            at_ns = since_ns + self._after_ns(burst)
            if on_ns is not None and off_ns is not None and at_ns - since_ns >= on_ns:
                at_ns = since_ns = since_ns + on_ns + off_ns
                burst = 0
            if at_ns >= end_ns:
                return
            yield at_ns
            burst += 1

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
    """Check rules that concern several keys."""
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
