"""`drlctl limit`: look at limits, and change those of this limiter or of the fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

import click
from click.core import ParameterSource

from drld.cli.client import Daemon, Problems, Refused, limit_path
from drld.cli.completion import interfaces, limit_names, words
from drld.cli.fleet import FleetLimits, Fleets, registry_option, show_limits, waiting
from drld.cli.limit_fields import UNTIL, limit_fields
from drld.cli.limits import limits
from drld.cli.output import Commands, json_option, write_differences, write_fields, write_json
from drld.cli.suggestion import suggestion_fields
from drld.cli.top import top
from drld.control.schema.changes import ChangeReport
from drld.control.schema.limits import LimitReport, SuggestionReport
from drld.planes import registered

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: Mapping[str, tuple[type, str]] = {
    "name": (str, "Unique; letters, digits, dots, dashes, underscores."),
    "unit": (str, '"requests" or "bytes", for a limit on requests.'),
    "rate": (str, 'Such as "10mbit", or "100/s" for requests.'),
    "burst": (
        str,
        'Such as "75kB", "200" for requests or "10msg"; default: "auto", 0.25 s of the rate.',
    ),
    "allocator": (str, 'How the rate is divided; default: "fair".'),
    "interval": (str, 'Of estimates, such as "50ms"; default: gossip.interval.'),
    "ewma": (float, "Weight of history one second old in the demand; default: 0.1."),
    "mode": (str, '"enforce", "shadow" or "pause".'),
    "on_failure": (str, 'While the daemon is dead: "share", "open" or "closed".'),
    "excess": (str, '"drop" or "mark"; of messages "wait" or "drop".'),
    "bucket": (str, 'With --per: "ledger", "queue" or "counter".'),
    "max_keys": (int, "With --per: buckets that a limiter keeps at a time."),
    "overrides": (
        str,
        'With --per: of one key, as "user=bigco,rate=1000/s,burst=2000"; without rate and '
        "burst: as all others. Repeat it for others.",
    ),
    "flow": (str, '"5-tuple", "source", or with prefix lengths "source/24/64".'),
}
"""Keys of a limit that are options: type and help text."""


_SEVERAL = {"overrides": "override"}
"""Options that may be repeated: their name, by key."""
INTERFACE = "INTERFACE"
"""Placeholder of an interface of this host."""


class Limits(Protocol):
    """Limits that the verbs change."""

    def add(self, tables: Sequence[object]) -> None:
        """Add limits, all or none."""

    def set(self, limit: str, keys: Mapping[str, object]) -> None:
        """Change keys of the limit of this name or id."""

    def remove(self, limit: str) -> None:
        """Remove the limit of this name or id."""


class _OwnLimits:
    """The limits of the daemon."""

    def __init__(self, daemon: Daemon, save: bool, as_json: bool) -> None:
        self._daemon = daemon
        self._save = save
        self._as_json = as_json

    def add(self, tables: Sequence[object]) -> None:
        self._change("/v1/limits", {"limits": tables})

    def set(self, limit: str, keys: Mapping[str, object]) -> None:
        self._change(limit_path(limit, "set"), {"set": keys})

    def remove(self, limit: str) -> None:
        self._change(limit_path(limit, "remove"), {})

    def _change(self, path: str, body: dict[str, object]) -> None:
        try:
            report = cast(ChangeReport, self._daemon.post(path, {**body, "save": self._save}))
        except Problems as error:
            if self._as_json:
                write_json({"problems": error.problems})
            raise Refused("\n".join(error.problems)) from None
        if self._as_json:
            write_json(report)
            return
        write_differences(report["changes"])
        if report["saved"]:
            click.echo(f"in force, and saved in {report['saved']}")
        elif report["changes"]:
            click.echo(f"in force {UNTIL}; --save keeps it")
        else:
            click.echo("nothing changes")
        if report["needed_at"]:
            click.echo(
                "drlctl: limiters that share a limit must agree: make the same change at each of "
                f"these that has the limit: {', '.join(report['needed_at'])}",
                err=True,
            )


@click.group(cls=Commands)
def limit() -> None:
    """Look at limits, and change those of this limiter or, with --fleet, of the whole fleet.

    A change is in force at once. It lasts until the daemon restarts or reloads its files; --save
    keeps it, in a drop-in beside them.

    \b
    drlctl limit set customer-a --rate 20mbit --save
    """


def _only_with(fleet: bool, *names: str) -> None:
    """Refuse options that only --fleet reads, rather than ignore them."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "")
        if not fleet and option.name in names and given is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option.opts[0]} is for the fleet's registry: add --fleet")


def _changing(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose between limiter and fleet; the command gets `Limits`."""

    @click.option("--fleet", is_flag=True, help="Change the fleet's registry in etcd.")
    @click.option("--save", is_flag=True, help="Keep the change after restarts and reloads.")
    @registry_option
    @waiting
    @json_option
    @click.pass_obj
    @wraps(command)
    def run(daemon: Daemon, /, fleet: bool, save: bool, **given: Any) -> None:
        if fleet and save:
            raise click.UsageError("--save is for this limiter: a registry keeps all changes")
        _only_with(fleet, "file", "wait_s")
        file, wait_s, as_json = (given.pop(key) for key in ("file", "wait_s", "as_json"))
        own, all_ = _OwnLimits(daemon, save, as_json), Fleets(daemon, file)
        command(FleetLimits(all_, wait_s, as_json) if fleet else own, **given)

    return run


def _keys(command: F) -> F:
    """Add the options for the keys of a limit; those of its target are called `match_KEY`."""
    for plane in reversed(registered("target_options")):
        for key, (metavar, text) in reversed(plane.OPTIONS.items()):
            flag = f"--{key.replace('_', '-')}"
            values = interfaces if metavar == INTERFACE else words(key)
            command = click.option(
                flag,
                f"match_{key}",
                metavar=metavar,
                help=text,
                shell_complete=values,
                multiple=True,
                callback=_once,
            )(command)
    for key, (kind, text) in reversed([*_OPTIONS.items()]):
        several = key in _SEVERAL
        flag = f"--{_SEVERAL.get(key, key).replace('_', '-')}"
        command = click.option(
            flag, key, type=kind, help=text, multiple=several, shell_complete=words(key)
        )(command)
    return command


def _once(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The value of an option. Of a repeated one, the last value alone would count."""
    if len(given) > 1:
        several = f", as {','.join(given)}" if str(option.metavar).endswith(",...") else ""
        raise click.BadParameter(f"must be given once{several} (got {' and '.join(given)})")
    return given[0] if given else None


def _table(options: Mapping[str, Any]) -> dict[str, object]:
    """The options as a table of [[limit]]."""
    given = {
        name: [*value] if isinstance(value, tuple) else value
        for name, value in options.items()
        if value not in (None, ())
    }
    match = {name[6:]: given.pop(name) for name in list(given) if name.startswith("match_")}
    return {**given, "match": match} if match else given


@limit.command()
@click.argument("tables_file", type=click.Path(), metavar="[FILE]", required=False)
@click.option("--id", type=int, help="Equal at all limiters. Without peers: the first free one.")
@_keys
@_changing
def add(its: Limits, /, tables_file: str | None, **options: Any) -> None:
    """Add a limit, or the [[limit]] tables of FILE, all or none.

    What the options mean is in docs/configuration.md.

    \b
    drlctl limit add --id 7 --name customer-a --rate 10mbit --out eth1
    drlctl limit add customers.toml --fleet
    """
    table = _table(options)
    if (tables_file is None) == (not table):
        raise click.UsageError("either a FILE with [[limit]] tables, or options")
    if tables_file is None:
        its.add([table])
        return
    from drld.config import read_limits
    from drld.errors import ConfigError

    try:
        tables = read_limits(tables_file)
    except ConfigError as error:
        raise Refused("\n".join(error.problems)) from None
    its.add(tables)


@limit.command("set")
@click.argument("limit", shell_complete=limit_names)
@_keys
@_changing
def set_keys(its: Limits, /, limit: str, **options: Any) -> None:
    """Change keys of the limit of this name or id; tokens and counters stay.

    An option of its target changes one field alone; without a value, as in --client "", it takes
    the field away. --override replaces the override of its key, rate and burst.

    \b
    drlctl limit set customer-a --rate 20mbit --save
    drlctl limit set api-user --override user=bigco,rate=1000/s,burst=2000
    """
    if not (keys := _table(options)):
        raise click.UsageError("nothing to set: give an option such as --rate")
    if isinstance(match := keys.get("match"), dict):
        keys["match"] = [f"{field}={value}" for field, value in match.items()]
    its.set(limit, keys)


@limit.command()
@click.argument("limit", shell_complete=limit_names)
@_changing
def remove(its: Limits, /, limit: str) -> None:
    """Remove the limit of this name or id.

    \b
    drlctl limit remove customer-a --save
    """
    its.remove(limit)


def _mode(mode: str, text: str) -> None:
    """Add the verb that sets a mode."""

    def verb(its: Limits, /, limit: str) -> None:
        its.set(limit, {"mode": mode})

    verb.__doc__ = f"{text}\n\n\b\ndrlctl limit {mode} customer-a"
    limit.command(mode)(click.argument("limit", shell_complete=limit_names)(_changing(verb)))


_mode("pause", "Let all traffic of the limit of this name or id pass, and count it.")
_mode("shadow", "As pause, and count the traffic that the limit would drop, refuse or delay.")
_mode("enforce", "Enforce the limit of this name or id again.")


@limit.command()
@click.argument("limit", required=False, shell_complete=limit_names)
@click.option("--fleet", is_flag=True, help="Show the fleet's registry in etcd.")
@registry_option
@json_option
@click.pass_context
def show(
    context: click.Context, limit: str | None, fleet: bool, file: str | None, as_json: bool
) -> None:
    """Show everything about the limit of this name, or all limits, one a line.

    \b
    drlctl limit show customer-a
    drlctl limit show --fleet
    """
    daemon: Daemon = context.obj
    _only_with(fleet, "file")
    if fleet:
        show_limits(Fleets(daemon, file), limit, as_json)
    elif limit is None:
        context.invoke(limits, as_json=as_json)
    else:
        report = cast(LimitReport, daemon.get(limit_path(limit)))
        if as_json:
            write_json(report)
        else:
            write_fields(limit_fields(report))


@limit.command()
@click.argument("limit", shell_complete=limit_names)
@click.option(
    "--part", default=0.99, show_default=True, help="Part of the seconds that stays unlimited."
)
@json_option
@click.pass_obj
def suggest(daemon: Daemon, limit: str, part: float, as_json: bool) -> None:
    """Suggest a rate and a burst from the traffic of the limit of this name at this limiter.

    The limit has to be in mode shadow: one that drops slows senders down, and so sees less than
    they want. In a fleet, ask each limiter: the limit has to hold the sum.

    \b
    drlctl limit suggest customer-a
    drlctl limit suggest customer-a --part 0.999
    """
    path = limit_path(limit, f"suggestion?part={part}")
    report = cast(SuggestionReport, daemon.get(path))
    if as_json:
        write_json(report)
    else:
        write_fields(suggestion_fields(report))


def _top(name: str | None, **options: Any) -> None:
    """Watch all limits live, or the limit NAME; of one with match.per, show the busiest keys.

    It is `drlctl top`, but for a limit with a bucket for each key: then the keys with most in use
    come first, and --count says how many (20).

    \b
    drlctl limit top api-user --count 5
    """
    context = click.get_current_context()
    for plane in registered("commands"):
        show = getattr(plane, "show_keys", None)
        if name and show and show(context.obj, name, options["count"] or 20, options["as_json"]):
            return
    context.invoke(top, name=name, **options)


limit.add_command(click.Command("top", params=top.params, callback=_top, help=_top.__doc__))
