"""Makes the `udp` part of a run's record (docs/testbed.md). Pure.

Payload is what follows the UDP header. Rates are bits/s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.attempts import refused
from testbed.datagrams import UDP_HEADERS, UdpGroup, UdpSource

LATE_NS = 50_000_000
"""A packet that was sent later than this fails the run."""
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class UdpReport:
    """The observations of one source."""

    id: str
    limiter: str
    size: int
    """Size of its IP packets, bytes."""
    start_s: float
    end_s: float
    sent: int
    """Packets sent in the whole run."""
    steps: tuple[int, ...]
    """Bytes of payload received in each step of the run."""

    def ip_bytes(self, first_step: int = 0) -> float:
        """IP bytes received from a step on."""
        return sum(self.steps[first_step:]) * self.size / (self.size - UDP_HEADERS)


def udp_reports(
    planned: Sequence[tuple[UdpGroup, str, Sequence[UdpSource]]],
    sent: Mapping[str, Any],
    received: Sequence[Mapping[str, Any]],
    steps: int,
    disturbed: Callable[[str], None] = refused,
) -> tuple[UdpReport, ...]:
    """A report of each source, from the reports of a run's processes.

    Args:
        planned: each group, its sending address, and its sources.
        sent: `late_ns` of the latest packet, and the packets `sent` by each source, in that order.
        received: `bytes` of payload in each step, of each `source` (its number) of an `address`;
            sources without received packets are missing.
        steps: number of steps in a run.
        disturbed: called if a packet was sent late.
    """
    if sent["late_ns"] > LATE_NS:
        disturbed(
            f"a UDP packet was sent {sent['late_ns'] / 1e6:.0f} ms late "
            f"(at most {LATE_NS / 1e6:.0f} ms)"
        )
    counted = {(item["address"], item["source"]): tuple(item["bytes"]) for item in received}
    packets = iter(sent["sent"])
    return tuple(
        UdpReport(
            source.id, source.limiter, group.table.size, group.table.start / _NS_PER_S,
            source.end_ns / _NS_PER_S, next(packets), counted.get((address, number), (0,) * steps),
        )
        for group, address, sources in planned
        for number, source in enumerate(sources)
    )  # fmt: skip


def udp_record(
    reports: Sequence[UdpReport], begin_s: float, end_s: float, step_s: float, *, series: bool
) -> list[dict[str, Any]]:
    """An entry for each source; its rates are of that part of the measured time in which it ran."""
    return [_entry(report, begin_s, end_s, step_s, series=series) for report in reports]


def _entry(
    report: UdpReport, begin_s: float, end_s: float, step_s: float, *, series: bool
) -> dict[str, Any]:
    first = int(max(begin_s, report.start_s) / step_s + 1e-9)
    last = int(-(-min(end_s, report.end_s) // step_s))
    lived_s = max(last - first, 0) * step_s
    payload = sum(report.steps[first:last]) * 8 / lived_s if lived_s else 0.0
    entry = {
        "id": report.id,
        "limiter": report.limiter,
        "size": report.size,
        "start_s": report.start_s,
        "end_s": report.end_s,
        "sent": report.sent,
        "goodput_bps": payload,
        "forwarded_bps": payload * report.size / (report.size - UDP_HEADERS),
    }
    if series:
        entry["goodput_series_bps"] = [round(count * 8 / step_s) for count in report.steps]
    return entry
