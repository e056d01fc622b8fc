"""`drlctl peers`: the other limiters of the fleet."""

from __future__ import annotations

from typing import cast

import click

from drld.cli.client import Daemon
from drld.cli.output import json_option, write_json, write_table
from drld.control.schema.peers import PeerReport
from drld.units import human_duration

_HEADERS = (
    "NAME",
    "ADDRESS",
    "STATE",
    "VERDICT",
    "LAST UPDATE",
    "RECEIVED",
    "LOST",
    "LATE",
    "REJECTED",
)


@click.command()
@json_option
@click.pass_obj
def peers(daemon: Daemon, as_json: bool) -> None:
    """Show the other limiters of the fleet.

    \b
    drlctl peers
    """
    reports = cast(list[PeerReport], daemon.get("/v1/peers"))
    if as_json:
        write_json(reports)
    else:
        write_table(_HEADERS, [_row(report) for report in reports], left=4)


def _row(report: PeerReport) -> tuple[str, ...]:
    age = report["age_s"]
    return (
        report["name"],
        report["address"],
        "connected" if report["connected"] else "disconnected",
        report["verdict"],
        "never" if age is None else f"{human_duration(age)} ago",
        str(report["received"]),
        str(report["lost"]),
        str(report["late"]),
        str(report["rejected"]),
    )
