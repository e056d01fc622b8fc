"""The counts of a replay for one limit, in bounded memory: totals, flows, worst second. Pure.

Flows: the bytes of each are counted. Whenever `MAX_FLOWS` are known, the smaller half is forgotten.
So the count of a flow that was small at such a moment lacks its bytes until then.

Time: bytes are counted in spans of a second, from the limit's first packet on. The worst second is
the one with the most dropped bytes. If a trace has more than `MAX_SPANS` seconds, the spans of the
plot double until they fit.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from drld.estimate.traffic_profile import TrafficProfile
from drld.model import NS_PER_S

MAX_FLOWS = 8192
"""The most flows that are counted at a time; they take about 2 MB."""
MAX_SPANS = 1024
"""The most points of a plot: as many as a screen shows."""

TICK_NS = NS_PER_S // 100
"""Interval of the profile for `--suggest`: bursts are exact to two of them."""


class Span(NamedTuple):
    """Bytes of a span of time."""

    arrived: int = 0
    forwarded: int = 0
    dropped: int = 0

    def plus(self, other: Span) -> Span:
        """The sum of both."""
        return Span(*(one + another for one, another in zip(self, other, strict=True)))


@dataclass(slots=True)
class Tally:
    """The counts of one limit."""

    start_ns: int
    min_rate: int
    """The smallest rate that a limit of this unit may have, tokens/s."""
    packets: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    size: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """Packets and bytes: arrived, forwarded, dropped, marked."""
    flows: dict[Hashable, list[int]] = field(default_factory=dict)
    """Bytes by flow: arrived, forwarded."""
    worst: tuple[int, Span] | None = None
    """The second with the most dropped bytes, counted from 0, and its bytes; None: no drops."""
    spans: list[Span] = field(default_factory=list)
    span_s: int = 1
    profile: TrafficProfile = field(init=False)
    _tick_ns: int = field(init=False)
    """The end of the present interval of the profile."""
    _tick_bytes: int = 0
    """The bytes of that interval."""
    _second: int = 0
    _bytes: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Bytes of the present second: as in `Span`."""

    def __post_init__(self) -> None:
        self.profile = TrafficProfile(self.min_rate, self.start_ns)
        self._tick_ns = self.start_ns + TICK_NS

    def arrive(self, flow: Hashable, length: int, now_ns: int) -> None:
        """Count a packet of `length` bytes that falls under the limit."""
        second = (now_ns - self.start_ns) // NS_PER_S
        if second > self._second:
            self.close()
            self._second = second
        if now_ns >= self._tick_ns:
            self._end_tick(now_ns)
        self._tick_bytes += length
        self.packets[0] += 1
        self.size[0] += length
        self._bytes[0] += length
        counted = self.flows.get(flow)
        if counted is None:
            if len(self.flows) >= MAX_FLOWS:
                ordered = sorted(self.flows.items(), key=lambda item: item[1][0])
                self.flows = dict(ordered[MAX_FLOWS // 2 :])
            counted = self.flows[flow] = [0, 0]
        counted[0] += length

    def _end_tick(self, now_ns: int) -> None:
        """End the present interval; intervals without a packet from then on are left out."""
        self.profile.add(self._tick_bytes, TICK_NS, self._tick_ns)
        self._tick_bytes = 0
        self._tick_ns = now_ns - (now_ns - self.start_ns) % TICK_NS + TICK_NS

    def drop(self, length: int) -> None:
        """Count the packet as dropped."""
        self.packets[2] += 1
        self.size[2] += length
        self._bytes[2] += length

    def forward(self, flow: Hashable, length: int, marked: bool) -> None:
        """Count the packet as forwarded."""
        for at in (1, 3) if marked else (1,):
            self.packets[at] += 1
            self.size[at] += length
        self._bytes[1] += length
        self.flows[flow][1] += length

    def end(self) -> None:
        """End the trace."""
        self.close()
        self._end_tick(self._tick_ns)

    def close(self) -> None:
        """End the present second."""
        span = Span(*self._bytes)
        self._bytes = [0, 0, 0]
        if span.dropped and (self.worst is None or span.dropped > self.worst[1].dropped):
            self.worst = self._second, span
        while self._second // self.span_s >= MAX_SPANS:
            halves = [*self.spans, Span()] if len(self.spans) % 2 else self.spans
            self.spans = [one.plus(two) for one, two in zip(halves[::2], halves[1::2], strict=True)]
            self.span_s *= 2
        at = self._second // self.span_s
        self.spans += [Span()] * (at + 1 - len(self.spans))
        self.spans[at] = self.spans[at].plus(span)
