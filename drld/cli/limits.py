"""`drlctl limits`: all limits, one a line."""

from __future__ import annotations

from typing import cast

import click

from drld.cli.client import Daemon
from drld.cli.output import NONE, burst, json_option, rate_or_none, write_json, write_table
from drld.control.schema.limits import LimitReport
from drld.units import human_amount, human_duration, human_rate

_HEADERS = (
    "NAME",
    "ALLOCATOR",
    "MODE",
    "ID",
    "RATE",
    "BURST",
    "IN FORCE",
    "DEMAND",
    "LOCAL LIMIT",
    "DROP P",
    "FLOWS",
    "FORWARDED",
    "DROPPED",
)
_OF_WAITS = ("WAITING", "P50", "P95", "P99")
"""The columns of limits whose items wait: their number, and percentiles of their access delay over
the last minute."""


@click.command()
@json_option
@click.pass_obj
def limits(daemon: Daemon, as_json: bool) -> None:
    """Show all limits, one a line.

    \b
    drlctl limits
    """
    reports = cast(list[LimitReport], daemon.get("/v1/limits"))
    if as_json:
        write_json(reports)
    else:
        waits = any(report["waits"] for report in reports)
        rows = [_row(report) + (_waits(report) if waits else ()) for report in reports]
        write_table(_HEADERS + (_OF_WAITS if waits else ()), rows, left=3)


def _row(report: LimitReport) -> tuple[str, ...]:
    unit = report["unit"]
    return (
        report["name"],
        report["allocator"],
        report["mode"],
        str(report["id"]),
        human_rate(report["rate_bps"], unit),
        burst(human_amount(report["burst_bytes"], unit), report["burst_is_automatic"]),
        human_rate(report["limit_in_force_bps"], unit),
        human_rate(report["demand_bps"], unit),
        rate_or_none(report["local_limit_bps"], unit),
        f"{report['drop_probability']:.3f}",
        str(report["flows"]),
        human_amount(report["forwarded_bytes"], unit),
        human_amount(report["dropped_bytes"], unit),
    )


def _waits(report: LimitReport) -> tuple[str, ...]:
    if (waits := report["waits"]) is None:
        return (NONE,) * len(_OF_WAITS)
    delays = waits["p50_s"], waits["p95_s"], waits["p99_s"]
    return str(waits["waiting"]), *map(human_duration, delays)
