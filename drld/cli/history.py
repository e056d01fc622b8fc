"""`drlctl history`: changes of limits, with time, author, old and new values."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import cast

import click

from drld.cli.client import Daemon
from drld.cli.completion import limit_names
from drld.cli.output import json_option, write_json
from drld.cli.view.cells import visible
from drld.control.schema.changes import HistoryEntry
from drld.model import NS_PER_S
from drld.units import QuantityError, parse_duration

_VIA = {
    "control": "drlctl or the control API",
    "reload": "a reload",
    "signal": "a reload by SIGHUP",
    "registry": "the fleet's registry",
}


def _since(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """Return the option as Unix time, s: a duration before now, or a date in UTC.

    Raises:
        click.BadParameter: the value is neither.
    """
    if value is None:
        return None
    try:
        return time.time() - parse_duration(value) / NS_PER_S
    except QuantityError:
        pass
    try:
        date = datetime.fromisoformat(value)
    except ValueError:
        allowed = 'must be a duration such as "2h", or a date such as "2026-03-29 14:00", in UTC'
        raise click.BadParameter(allowed) from None
    return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()


@click.command()
@click.option(
    "--limit",
    metavar="NAME",
    shell_complete=limit_names,
    help="Only changes of the limit of this name or id; default: of all limits.",
)
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help='Only changes since then: "2h" ago, or "2026-03-29 14:00" (UTC); default: all that the '
    "daemon remembers.",
)
@json_option
@click.pass_obj
def history(daemon: Daemon, limit: str | None, since: float | None, as_json: bool) -> None:
    """Show who changed which limit at this limiter, the newest change first.

    A start has an entry without details: files may have changed while the daemon was stopped.

    \b
    drlctl history --limit customer-a --since 24h
    """
    entries = [
        entry
        for entry in cast(list[HistoryEntry], daemon.get("/v1/history"))
        if (since is None or entry["t"] >= since)
        and (limit is None or limit in (entry["limit"], str(entry["id"])))
    ]
    if as_json:
        write_json(entries)
        return
    for entry in entries:
        for line in _lines(entry):
            click.echo(visible(line))
    if not entries:
        click.echo("no changes are known", err=True)


def _lines(entry: HistoryEntry) -> Iterator[str]:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(entry["t"]))
    if entry["change"] == "started":
        yield f"{when}  drld started, limits: {entry['count']}"
        return
    what = f"limit {entry['limit']} {entry['change']}"
    if entry["change"] == "more":
        what = f"and {entry['count']} limits more"
    yield f"{when}  {what} by {_who(entry)}"
    for key, (old, new) in entry["keys"].items():
        if entry["change"] == "changed":
            yield f"    {key}: {_value(old)} -> {_value(new)}"
        elif key != "name":
            yield f"    {key}: {_value(new if old is None else old)}"


def _value(value: str | None) -> str:
    return "(left out)" if value is None else value


def _who(entry: HistoryEntry) -> str:
    via = _VIA.get(entry["via"], entry["via"])
    if entry["revision"] is not None:
        via += f", revision {entry['revision']}"
    if entry["uid"] is None:
        return via
    user = entry["user"] or f"uid {entry['uid']}"
    login = f" (logged in as {entry['login']})" if entry["login"] not in (None, user) else ""
    kept = ", saved" if entry["saved"] else ""
    return f"{user}{login}, pid {entry['pid']}, through {via}{kept}"
