"""`drlctl trace NAME`: one limit, tick by tick."""

from __future__ import annotations

import json
import time
from contextlib import closing
from itertools import islice
from typing import cast

import click

from drld.cli.client import Daemon, Refused, limit_path
from drld.cli.completion import limit_names
from drld.cli.output import json_option, rate_or_none, table_row
from drld.control.schema.limits import TraceLine
from drld.units import human_number, human_rate

_HEADERS = (
    "TIME (UTC)",
    "ARRIVED",
    "FORWARDED",
    "DROPPED",
    "DEMAND",
    "LOCAL",
    "REMOTE",
    "IN FORCE",
    "LOCAL LIMIT",
    "DROP P",
    "FLOWS",
)
# Later rows are not known yet: these widths hold any rate below 1 Tbit/s.
_WIDTHS = (12, 11, 11, 11, 11, 7, 7, 11, 11, 6, 5)


@click.command()
@click.argument("name", shell_complete=limit_names)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N ticks.")
@json_option
@click.pass_obj
def trace(daemon: Daemon, name: str, count: int | None, as_json: bool) -> None:
    """Follow the limit NAME tick by tick, until interrupted.

    \b
    drlctl trace customer-a --count 20
    """
    written = skipped = 0
    try:
        with closing(daemon.lines(limit_path(name, "trace"))) as lines:
            for line in islice(lines, count):
                record = cast(TraceLine, json.loads(line))
                if not as_json and written == 0:
                    click.echo(table_row(_HEADERS, _WIDTHS, left=1))
                click.echo(line if as_json else table_row(_row(record), _WIDTHS, left=1))
                written += 1
                if record["number"] + 1 - written != skipped:
                    skipped = record["number"] + 1 - written
                    click.echo(
                        f"drlctl: {skipped} records skipped: the reader is too slow", err=True
                    )
    except KeyboardInterrupt:
        return
    if count is None or written < count:
        raise Refused("the daemon ended the trace: was it stopped, or the limit removed?")


def _row(record: TraceLine) -> tuple[str, ...]:
    unit = record["unit"]
    whole, milliseconds = divmod(round(record["t"] * 1000), 1000)
    return (
        f"{time.strftime('%H:%M:%S', time.gmtime(whole))}.{milliseconds:03}",
        human_rate(record["arrived_bps"], unit),
        human_rate(record["forwarded_bps"], unit),
        human_rate(record["dropped_bps"], unit),
        human_rate(record["demand_bps"], unit),
        human_number(record["local"]),
        human_number(record["remote"]),
        human_rate(record["limit_in_force_bps"], unit),
        rate_or_none(record["local_limit_bps"], unit),
        f"{record['drop_probability']:.3f}",
        str(record["flows"]),
    )
