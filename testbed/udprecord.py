"""From what became of UDP packets to their part of a run's record (docs/testbed.md). Pure.

Payload is what follows the UDP header. Rates are bits/s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.datagrams import UDP_HEADERS


@dataclass(frozen=True, slots=True)
class UdpReport:
    """What was seen of one source."""

    id: str
    limiter: str
    size: int
    """Bytes of each of its IP packets."""
    start_s: float
    end_s: float
    sent: int
    """Packets that it sent, in the whole run."""
    steps: tuple[int, ...]
    """Bytes of payload that came in each step of the run."""

    def ip_bytes(self, first_step: int = 0) -> float:
        """IP bytes that came from a step on."""
        return sum(self.steps[first_step:]) * self.size / (self.size - UDP_HEADERS)


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
