"""The lines of `drlctl limit show NAME`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from drld.cli.output import NONE, burst, rate_or_none
from drld.control.schema.limits import FleetView, LimitReport, WaitsReport
from drld.units import human_amount, human_duration, human_rate

UNTIL = "(until a restart or a reload)"


def limit_fields(report: LimitReport) -> list[tuple[str, str]]:
    """Names and values of the lines about a limit."""
    depth, unit = report["depth_bytes"], report["unit"]
    bucket = (
        "no bucket"
        if depth is None
        else f"fill {human_rate(report['fill_rate_bps'], unit)}, depth {human_amount(depth, unit)}"
    )
    size = human_amount(report["burst_bytes"], unit)
    return [
        (
            "limit",
            f"{report['name']} (id {report['id']}), {report['allocator']}, {report['mode']}, "
            f"on failure {report['on_failure']}, excess {report['excess']}",
        ),
        (
            "rate",
            f"{human_rate(report['rate_bps'], unit)}, "
            f"burst {burst(size, report['burst_is_automatic'])}, "
            f"every {human_duration(report['interval_s'])}",
        ),
        *([("weights", _weights(report["weights"]))] if report["weights"] else []),
        ("match", ", ".join(f"{key} {text}" for key, text in _match(report["match"]))),
        *([("overrides", _overrides(report))] if report["overrides"] else []),
        ("flow", report["flow"]),
        *([("unsaved", f"{', '.join(report['unsaved'])} {UNTIL}")] if report["unsaved"] else []),
        ("in force", human_rate(report["limit_in_force_bps"], unit)),
        ("demand", f"{human_rate(report['demand_bps'], unit)}, {report['flows']} flows sampled"),
        ("fleet", _fleet(report["fleet"], unit)),
        ("local limit", rate_or_none(report["local_limit_bps"], unit)),
        ("enforcement", f"drop probability {report['drop_probability']:.3g}, {bucket}"),
        ("arrived", _amount(report, report["arrived_bytes"], report["arrived_packets"])),
        ("forwarded", _amount(report, report["forwarded_bytes"], report["forwarded_packets"])),
        *_marked(report),
        ("dropped", _amount(report, report["dropped_bytes"], report["dropped_packets"])),
        *_elsewhere(report),
        *([_waits(report["waits"])] if report["waits"] else []),
    ]


def _match(match: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a target, and their values as people write them."""
    for key, value in match.items():
        parts = value if isinstance(value, list) else [value]
        if isinstance(value, Mapping):
            parts = [f"{name}={it}" for name, it in value.items()]
        if parts:
            yield key, ",".join(map(str, parts))


def _overrides(report: LimitReport) -> str:
    """Keys with a rate and a burst of their own, one a line."""
    unit = report["unit"]
    lines = [
        f"{', '.join(it['key'])}: {human_rate(it['rate_bps'], unit)}, "
        f"burst {human_amount(it['burst_bytes'], unit)}"
        for it in report["overrides"]
    ]
    more = report["overrides_in_all"] - len(lines)
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])


def _marked(report: LimitReport) -> list[tuple[str, str]]:
    """The part of the forwarded traffic that is marked; no line without marks."""
    size, count = report["marked_bytes"], report["marked_packets"]
    return [("marked", _amount(report, size, count))] if count > 0 else []


def _elsewhere(report: LimitReport) -> list[tuple[str, str]]:
    """The traffic that other limits dropped; no line if they dropped nothing."""
    size = report["arrived_bytes"] - report["forwarded_bytes"] - report["dropped_bytes"]
    count = report["arrived_packets"] - report["forwarded_packets"] - report["dropped_packets"]
    return [("refused", f"{_amount(report, size, count)}, by other limits")] if count > 0 else []


def _waits(waits: WaitsReport) -> tuple[str, str]:
    delays = " / ".join(human_duration(waits[key]) for key in ("p50_s", "p95_s", "p99_s"))
    clients = "" if waits["clients"] is None else f", clients {waits['clients']}"
    return (
        "waiting",
        f"{waits['waiting']}, access delay p50 / p95 / p99 of the last minute {delays}, "
        f"{waits['waited']} have waited{clients}",
    )


def _weights(weights: dict[str, float]) -> str:
    return ", ".join([*(f"{name} {weight:g}" for name, weight in weights.items()), "others 1"])


def _fleet(fleet: FleetView, unit: str) -> str:
    local, remote = (
        human_rate(value, unit) if fleet["quantity"] == "rate" else f"{value:.2f}"
        for value in (fleet["local"], fleet["remote"])
    )
    age = NONE if fleet["age_s"] is None else human_duration(fleet["age_s"])
    names = [*fleet["connected"], *([f"{fleet['unnamed']} more"] if fleet["unnamed"] else [])]
    connected = ", ".join(names) or "no limiter"
    return f"{fleet['quantity']} {local} here, {remote} elsewhere ({connected}), age {age}"


def _amount(report: LimitReport, size: float, count: int) -> str:
    amount = human_amount(size, report["unit"])
    return amount if report["unit"] == report["items"] else f"{amount} in {count} {report['items']}"
