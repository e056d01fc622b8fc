"""The tables that a result is printed as. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from testbed.harness.markdown import aligned

_MOST_COLUMNS = 10
"""Most limiters with a column of their share in the table."""
_Column = tuple[str, int, Callable[[dict[str, Any]], float | None]]
"""Heading, decimals, and the figure of a run."""


def table_of(result: dict[str, Any]) -> str:
    """The main table: a row for each allocator, with medians over its runs."""
    limiters = result["limiters"] if len(result["limiters"]) <= _MOST_COLUMNS else []
    columns: list[_Column] = [
        ("rate/limit", 3, lambda run: run["aggregate_bps"] / result["limit_bps"]),
        *((name, 3, _share(name)) for name in limiters),
        # Flows that come and go during a run do not have the same due.
        ("Jain", 3, lambda run: None if run["events"] else run["jain"]),
        ("1s<=1.10", 2, lambda run: run["windows_within_limit"]),
        ("gossip B/s", 0, lambda run: run["gossip"]["bytes_per_limiter_per_s"]),
    ]
    web, udp = (any(kind in run for run in result["runs"]) for kind in ("web", "udp"))
    if web or udp:
        columns.append(("bulk Mbit/s", 2, lambda run: run["bulk_goodput_bps"] / 1e6))
    if web:
        columns.append(("web Mbit/s", 2, lambda run: run["web"]["goodput_bps"] / 1e6))
    if udp:
        columns.append(("UDP Mbit/s", 2, _udp_mbit))
    rows = [["allocator", "runs", *(heading for heading, _, _ in columns)]]
    for allocator in dict.fromkeys(run["allocator"] for run in result["runs"]):
        runs = [run for run in result["runs"] if run["allocator"] == allocator]
        cells = [_median(list(map(of_run, runs)), digits) for _, digits, of_run in columns]
        rows.append([allocator, f"{len(runs)}", *cells])
    return aligned(rows, left=1)


def legend_of(result: dict[str, Any]) -> str:
    """An explanation of the columns of both tables."""
    lines = [
        "rate/limit: what all limiters forwarded, over the limit. "
        "A limiter's column: its part of that.",
        "Jain: Jain's index of the flows' goodputs; 1 means that they are equal.",
        "1s<=1.10: the part of all seconds with at most 1.10 of the limit. "
        "gossip B/s: what one limiter sends.",
    ]
    if any(run["events"] for run in result["runs"]):
        lines.append("t80: time from an event until a flow has 80 % of its fair share.")
    return "\n".join(lines)


def disturbances_of(result: dict[str, Any]) -> list[str]:
    """A line for each run that the host disturbed and that still counts."""
    return [
        f"The host was too busy for {run['allocator']}, run {run['repetition']}, so its figures "
        f"are no measurement: {'; '.join(run['disturbances'])}"
        for run in result["runs"]
        if run.get("disturbances")
    ]


def _share(limiter: str) -> Callable[[dict[str, Any]], float]:
    return lambda run: float(run["share"][limiter])


def _udp_mbit(run: dict[str, Any]) -> float:
    """Goodput of all UDP sources of a run, Mbit/s."""
    return sum(float(source["goodput_bps"]) for source in run.get("udp", ())) / 1e6


def event_table_of(result: dict[str, Any]) -> str:
    """The flows' reaction times to events: a row for each kind and allocator.

    Empty without events.
    """
    events: dict[str, dict[str, list[Any]]] = {}
    for run in result["runs"]:
        for event in run["events"]:
            events.setdefault(event["kind"], {})
    for kind, by_allocator in events.items():
        for run in result["runs"]:
            found = by_allocator.setdefault(run["allocator"], [])
            found += [event for event in run["events"] if event["kind"] == kind]
    rows = [
        ["event", "allocator", "events", "flows", "t80 s", "lasting s", "in force s", "highest 1s"],
        *(
            [kind, allocator, *_event_cells(found)]
            for kind, by_allocator in events.items()
            for allocator, found in by_allocator.items()
        ),
    ]
    return aligned(rows, left=2) if events else ""


def _event_cells(events: Sequence[Any]) -> list[str]:
    flows = [flow for event in events for flow in event["flows"]]
    highest = [
        event["highest_1s_bps"] / event["limit_bps"]
        for event in events
        if event["highest_1s_bps"] is not None
    ]
    return [
        f"{len(events)}",
        f"{len(flows)}",
        *(_times([flow[key] for flow in flows]) for key in ("t80_s", "lasting_s")),
        _times([event["in_force_s"] for event in events if event["in_force_s"] is not None]),
        f"{max(highest):.2f}" if highest else "-",
    ]


def _median(values: Sequence[float | None], digits: int) -> str:
    """Median, with minimum and maximum of several values; a dash without values."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ({min(known):.{digits}f}..{max(known):.{digits}f})" if len(known) > 1 else ""
    return f"{statistics.median(known):.{digits}f}{spread}"


def _times(values: Sequence[float | None]) -> str:
    """Median, minimum and maximum; None counts as the longest time."""
    times = [math.inf if value is None else value for value in values]
    if not times:
        return "-"
    shown = [
        "never" if time == math.inf else f"{time:.2f}"
        for time in (statistics.median(times), min(times), max(times))
    ]
    return f"{shown[0]} ({shown[1]}..{shown[2]})"
