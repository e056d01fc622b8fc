"""`drlctl check`: ask whether a request may pass, and charge it; `drlctl limit top`: busy keys."""

from __future__ import annotations

from typing import cast

import click

from drld.cli.client import Daemon, NotFound, limit_path
from drld.cli.completion import limit_names
from drld.cli.output import NONE, json_option, write_json, write_table
from drld.control.schema.limits import LimitReport
from drld.requests.answer import CheckAnswer, LimitAnswer
from drld.requests.busy_report import BusyReport
from drld.units import human_amount, human_duration

REFUSED = 3
"""The exit status of a refusal; all commands use 1 and 2 for errors."""


@click.command()
@click.argument("words", metavar="[LIMIT] [NAME=VALUE]...", nargs=-1, shell_complete=limit_names)
@click.option("--namespace", help="Namespace of the request; default: that of LIMIT, or default.")
@click.option("--cost", type=int, default=1, show_default=True, help="0 asks, and takes nothing.")
@click.option("--bytes", "size", type=int, help="Size, for limits that count bytes.")
@click.option("--at-least", type=int, help="Least cost of use: as much up to --cost as fits.")
@click.option("--charge", is_flag=True, help="Charge it whatever is left: it is carried out.")
@click.option("--caller", help="Who sends the request; default: your user.")
@json_option
@click.pass_obj
def check(
    daemon: Daemon,
    words: tuple[str, ...],
    *,
    namespace: str | None,
    cost: int,
    size: int | None,
    at_least: int | None,
    charge: bool,
    caller: str | None,
    as_json: bool,
) -> None:
    """Ask whether a request may pass, as clients do, and charge it if it may.

    The pairs are the request's descriptor. The request falls under LIMIT: it has the namespace of
    this limit, and the pairs that the limit asks for. Exit status: 0 admitted, 3 refused, 1 the
    daemon cannot be reached or refuses to answer, 2 wrong usage.

    \b
    drlctl check api-user user=alice --cost 3
    drlctl check --namespace api user=alice --cost 3
    drlctl check --namespace api --cost 0 --json
    drlctl check --namespace llm user=alice --cost 5200 --charge
    """
    limit = words[0] if words and "=" not in words[0] else None
    split = [pair.partition("=") for pair in words[limit is not None :]]
    if any(not equals for _, equals, _ in split):
        raise click.UsageError("each argument but the name of a limit must be NAME=VALUE")
    pairs = {name: value for name, _, value in split}
    if len(pairs) < len(split):
        raise click.UsageError("each NAME must be given once")
    if limit is not None:
        if namespace is not None:
            raise click.UsageError("--namespace: must be left out, as the limit has one")
        namespace, pairs = _under(daemon, limit, pairs)
    asked = {
        "namespace": "default" if namespace is None else namespace,
        "descriptor": pairs,
        "cost": cost,
        "charge": charge,
        **({} if size is None else {"bytes": size}),
        **({} if at_least is None else {"at_least": at_least}),
        **({} if caller is None else {"caller": caller}),
    }
    (answer,) = cast(list[CheckAnswer], daemon.post("/v1/check", [asked]))
    if as_json:
        write_json(answer)
    else:
        _write(answer, cost, partly=at_least is not None)
    if not answer["admitted"]:
        raise SystemExit(REFUSED)


def _under(daemon: Daemon, limit: str, pairs: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the namespace of a limit, and these pairs with those that the limit asks for.

    Raises:
        UsageError: the limit is not on requests, or the request would not fall under it.
    """
    match = cast(LimitReport, daemon.get(limit_path(limit)))["match"]
    if "namespace" not in match:
        raise click.UsageError(f"{limit}: must be a limit on requests")
    for name in match["per"]:
        if name not in pairs:
            raise click.UsageError(f"{name}: is required: {limit} has a bucket for each {name}")
    for name, value in match["where"].items():
        if pairs.setdefault(name, value) != value:
            raise click.UsageError(f"{name}: must be {value}, or left out: {limit} asks for it")
    return match["namespace"], pairs


def _write(answer: CheckAnswer, cost: int, *, partly: bool) -> None:
    retry_s = answer["retry_after_s"]
    after = "" if retry_s is None else f"; it may pass in {human_duration(retry_s)}"
    limits = answer["limits"]
    if not answer["admitted"]:
        click.echo(f"refused: {answer['reason']}{after}")
    elif limits:
        click.echo(f"admitted: {answer['granted']} of {cost}" if partly else "admitted")
    else:
        click.echo("admitted: it falls under no limit")
    if limits:
        write_table(("LIMIT", "MODE", "LEFT", "BURST", "FULL IN"), [*map(_row, limits)], left=2)


def _row(limit: LimitAnswer) -> tuple[str, ...]:
    left, reset_s, unit = limit["remaining"], limit["reset_s"], limit["unit"]
    return (
        limit["limit"],
        limit["mode"],
        NONE if left is None else human_amount(left, unit),
        human_amount(limit["burst"], unit),
        NONE if reset_s is None else human_duration(reset_s),
    )


def show_keys(daemon: Daemon, limit: str, count: int, as_json: bool) -> bool:
    """Show the busiest keys of a limit; return whether it has any buckets of keys.

    The keys with the most tokens in use are first. These are the tokens that the fleet has
    admitted, as far as this limiter knows, and that time has not refilled. A recent key of this
    limiter is shown as its values, any other as its hash.
    """
    try:
        report = cast(BusyReport, daemon.get(limit_path(limit, f"keys?count={count}")))
    except NotFound:
        return False
    if as_json:
        write_json(report)
        return True
    unit = report["unit"]
    rows = [
        (
            it["key"] if it["text"] is None else _printable(it["text"]),
            human_amount(it["used"], unit),
            human_amount(it["burst"], unit),
        )
        for it in report["busiest"]
    ]
    write_table(("KEY", "USED", "BURST"), rows, left=1)
    click.echo(
        f"keys with a {report['bucket']} here: {report['keys']}, at most {report['max_keys']}; "
        f"peers in contact: {report['peers']}"
    )
    return True


def _printable(text: str) -> str:
    """Return a text that clients chose, without characters that control a terminal."""
    return text if text.isprintable() else ascii(text)


COMMANDS = (check,)
