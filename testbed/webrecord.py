"""Makes the `web` part of a run's record (docs/testbed.md). Pure.

Sizes bytes, times ns from the start of the run, rates bits/s of object bytes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from testbed.attempts import refused
from testbed.errors import MeasurementError
from testbed.workload import Request

LATE_NS = 50_000_000
"""A request of an open loop that started later than this fails the run."""
CLASSES = (0, 5_000, 50_000, 500_000)
"""Least sizes of the classes of table 1 of the paper; the last one has no upper end."""
MOST_ROWS = 20_000
"""Most requests that a run's record has one by one."""
OVERHEAD = 450
"""Most IP-layer bytes from the server for a request, besides full packets of its object. They are
its SYN-ACK, acknowledgements, FIN, the response's head, and a packet that is not full."""

_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Fetch:
    """A request that was started."""

    start_ns: int
    """Time at which the SYN was sent."""
    end_ns: int | None
    """Time at which the object was complete; None: the request was broken off."""
    size: int
    received: int
    """Received bytes of the object."""


@dataclass(frozen=True, slots=True)
class SiteReport:
    """The observations of one server's clients."""

    name: str
    limiter: str
    fetches: tuple[Fetch, ...]
    """Requests in the order of their start."""
    steps: tuple[int, ...]
    """Object bytes received in each step of the run."""
    late_ns: int
    """Largest lateness of a request's start in an open loop."""


def site_report(
    name: str,
    limiter: str,
    planned: Sequence[Request],
    told: dict[str, Any],
    *,
    open_loop: bool,
    disturbed: Callable[[str], None] = refused,
) -> SiteReport:
    """Read the client's report on a server, and check it against the plan.

    `disturbed` is called if the last arrivals are missing, or if one came at another time.

    Raises:
        MeasurementError: a request broke, or the arrivals were not those of the plan.
    """
    fetches = []
    for start_ns, end_ns, size, received, error in told["fetches"]:
        if error is not None:
            raise MeasurementError(f"web {name}: request for {size} bytes: {error}")
        fetches.append(Fetch(start_ns, end_ns, size, received))
    late_ns = _lateness(name, planned, fetches, disturbed) if open_loop else 0
    return SiteReport(name, limiter, tuple(fetches), tuple(told["steps"]), late_ns)


def _lateness(
    name: str,
    planned: Sequence[Request],
    fetches: Sequence[Fetch],
    disturbed: Callable[[str], None],
) -> int:
    """The largest lateness of a request's start.

    Raises:
        MeasurementError: arrivals are missing in the middle, or in disorder.
    """
    sizes = [fetch.size for fetch in fetches]
    wanted = [request.size for request in planned]
    if wanted != sizes:
        problem = (
            f"web {name}: {len(fetches)} requests were started, not the {len(planned)} planned"
        )
        # A client that was late at the end has not started the last requests.
        if wanted[: len(sizes)] != sizes:
            raise MeasurementError(problem)
        disturbed(problem)
    worst_ns = max(
        (abs(f.start_ns - request.start_ns) for request, f in zip(planned, fetches, strict=False)),
        default=0,
    )
    if worst_ns > LATE_NS:
        disturbed(
            f"web {name}: a request started {worst_ns / 1e6:.1f} ms late "
            f"(at most {LATE_NS / 1e6:.0f} ms): the arrivals were not those of the plan"
        )
    return worst_ns


def class_rates(fetches: Sequence[Fetch], begin_ns: int) -> list[dict[str, Any]]:
    """Harmonic mean of the rates of finished requests by size, as in table 1 of the paper.

    Only requests that started at `begin_ns` or later count. A rate is the size over the time from
    SYN to last byte; None without requests. Unfinished requests have no rate, and are counted.
    """
    found = []
    for least, beyond in pairwise([*CLASSES, math.inf]):
        own = [f for f in fetches if f.start_ns >= begin_ns and least <= f.size < beyond]
        rates = [
            f.size * 8 * _NS_PER_S / (f.end_ns - f.start_ns) for f in own if f.end_ns is not None
        ]
        found.append(
            {
                "from": least,
                "finished": len(rates),
                "unfinished": len(own) - len(rates),
                "rate_bps": statistics.harmonic_mean(rates) if rates else None,
            }
        )
    return found


def received_in(report: SiteReport, first_step: int) -> int:
    """Object bytes from a step on."""
    return sum(report.steps[first_step:])


def web_record(
    reports: Sequence[SiteReport], begin_s: float, end_s: float, step_s: float
) -> dict[str, Any]:
    """The `web` part of a run's record."""
    first_step = int(begin_s / step_s + 1e-9)
    fetches = [fetch for report in reports for fetch in report.fetches]
    by_time = sorted(
        ((index, fetch) for index, report in enumerate(reports) for fetch in report.fetches),
        key=lambda item: item[1].start_ns,
    )
    goodputs = [received_in(report, first_step) * 8 / (end_s - begin_s) for report in reports]
    return {
        "goodput_bps": sum(goodputs),
        "classes": class_rates(fetches, round(begin_s * _NS_PER_S)),
        "worst_late_ms": max((report.late_ns for report in reports), default=0) / 1e6,
        "sites": [
            {
                "name": report.name,
                "limiter": report.limiter,
                "goodput_bps": goodput,
                "requests": len(report.fetches),
                "goodput_series_bps": [count * 8 / step_s for count in report.steps],
            }
            for report, goodput in zip(reports, goodputs, strict=True)
        ],
        "requests": [
            [site, _seconds(fetch.start_ns), fetch.size, fetch.received, _seconds(fetch.end_ns)]
            for site, fetch in by_time[:MOST_ROWS]
        ],
        "requests_left_out": max(len(by_time) - MOST_ROWS, 0),
    }


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else round(time_ns / 1e9, 4)
