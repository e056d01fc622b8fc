"""A fleet that has a registry in etcd: `drlctl fleet`, and `drlctl limit ... --fleet`.

What these commands need to reach etcd they read from the `[registry]` of a configuration file:
that of the daemon, or any other. `drlctl fleet init` makes a fleet that has none (`fleet_init`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from drld.cli.client import Daemon, Refused
from drld.cli.completion import peer_names
from drld.cli.fleet_init import init
from drld.cli.output import NONE, Commands, burst, json_option, write_json, write_table
from drld.control.schema.status import StatusReport
from drld.units import human_amount, human_rate

if TYPE_CHECKING:
    from drld.registry.admin import Fleet, Status
    from drld.registry.model.state import Registry
    from drld.registry.records import Alive

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


_REGISTRY = "With the fleet's [registry]; default: $DRLD_CONFIG, else the daemon's file."


class Fleets:
    """Finds the registry, when a command needs it."""

    def __init__(self, daemon: Daemon, file: str | None) -> None:
        self._daemon = daemon
        self._file = file

    def at(self, file: str | None) -> Fleets:
        """The fleet whose registry this file names; None: as before."""
        return self if file is None else Fleets(self._daemon, file)

    def ask(self, question: Callable[[Fleet], Awaitable[T]]) -> T:
        """Ask the fleet a question, or change it.

        Raises:
            Refused: etcd cannot be reached or refuses, or what is asked for is a mistake.
        """
        import trio

        from drld.config import load_registry
        from drld.errors import ConfigError, RegistryError
        from drld.registry.admin import Fleet
        from drld.registry.etcd import Etcd

        file = self._file
        if file is None:
            status = cast(StatusReport, self._daemon.get("/v1/status"))
            file = status["config"]["file"]
        try:
            registry = load_registry(file)

            async def session() -> T:
                errors: list[str] = []
                fleet: Fleet | None = None
                for endpoint in registry.endpoints:
                    try:
                        async with Etcd(endpoint, registry) as etcd:
                            fleet = Fleet(etcd, registry)
                            return await question(fleet)
                    except RegistryError as error:
                        errors.append(str(error))
                        if fleet is not None and fleet.committing:
                            # This server may have made the change: another would then refuse it.
                            errors.append(
                                "the change may be in force: "
                                "check `drlctl limit show --fleet` before you try again"
                            )
                            break
                raise RegistryError("; ".join(errors))

            return trio.run(session)
        except ConfigError as error:
            raise Refused("\n".join(error.problems)) from None
        except RegistryError as error:
            raise Refused(str(error)) from None

    def applied(self, revision: int, wait_s: float) -> list[Status]:
        """Wait until all members that are alive have applied a change.

        Raises:
            Refused: the members cannot be seen; the change is made.
        """
        if not wait_s:
            return []
        try:
            return self.ask(lambda known: known.applied(revision, wait_s))
        except Refused as error:
            raise Refused(
                f"the change is made, revision {revision}, but it is unknown which limiters "
                f"apply it: {error.message}"
            ) from None


def registry_option(command: F) -> F:
    """Add `--config` to a command, which gets it as `file`."""
    return click.option(
        "--config",
        "file",
        type=click.Path(),
        envvar="DRLD_CONFIG",
        metavar="FILE",
        help=_REGISTRY,
    )(command)


@click.group(cls=Commands)
@registry_option
@click.pass_context
def fleet(context: click.Context, file: str | None) -> None:
    """Make a new fleet's files, or show and remove members of a fleet with a registry in etcd.

    `drlctl limit ... --fleet` changes the limits of such a fleet.

    \b
    drlctl fleet members --config /etc/drld/drld.toml
    """
    context.obj = Fleets(context.find_object(Daemon) or Daemon(None), file)


fleet.add_command(init)


def _of_fleet(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--config` to a verb, as before the verb; the verb gets `Fleets`."""

    @click.option("--config", "file", type=click.Path(), metavar="FILE", help=_REGISTRY)
    @click.pass_obj
    @wraps(command)
    def run(fleets: Fleets, /, file: str | None, **given: Any) -> None:
        command(fleets.at(file), **given)

    return run


def waiting(command: F) -> F:
    """Add `--wait` to a command, which gets seconds."""
    return click.option(
        "--wait",
        "wait_s",
        type=click.FloatRange(0, 3600),
        default=10.0,
        show_default=True,
        help="Seconds to wait for all members that are alive to apply it; 0 does not wait.",
    )(command)


@fleet.command()
@json_option
@_of_fleet
def members(fleets: Fleets, as_json: bool) -> None:
    """Show the members of the fleet.

    \b
    drlctl fleet members --json
    """

    async def look(fleet: Fleet) -> tuple[list[Status], Registry]:
        return await fleet.members(), await fleet.known()

    found, known = fleets.ask(look)
    if as_json:
        write_json([_member_json(status) for status in found])
    else:
        headers = ("NAME", "ADDRESS", "STATE", "SINCE", "APPLIED", "REFUSED")
        write_table(headers, [_member_row(status) for status in found], left=4)
    _complain(known)


def show_limits(fleets: Fleets, wanted: str | None, as_json: bool) -> None:
    """Show the fleet's limits, or the one of this name or id.

    Raises:
        Refused: there is none.
    """
    known = fleets.ask(lambda found: found.known())
    ids = [
        limit_id
        for limit_id, held in sorted(known.limits.items())
        if wanted in (None, held.value.name, str(limit_id))
    ]
    if wanted is not None and not ids:
        raise Refused(f"the fleet has no limit {wanted!r}")
    if as_json:
        write_json({"limits": _tables(known, ids), "problems": known.problems})
        return
    headers = ("NAME", "ALLOCATOR", "MODE", "MATCH", "ID", "RATE", "BURST")
    write_table(headers, [_limit_row(known, limit_id) for limit_id in ids], left=4)
    _complain(known)


class FleetLimits:
    """The limits of a whole fleet, for the verbs of `drlctl limit`."""

    def __init__(self, fleets: Fleets, wait_s: float, as_json: bool) -> None:
        self._fleets = fleets
        self._wait_s = wait_s
        self._as_json = as_json

    def add(self, tables: Sequence[object]) -> None:
        """Add limits to the whole fleet."""
        ids, revision = self._fleets.ask(lambda known: known.add_limits(tables))
        done = f"{'limit' if len(ids) == 1 else 'limits'} {', '.join(map(str, ids))}"
        self._finish(_Change(done, revision, ids))

    def set(self, limit: str, keys: Mapping[str, object]) -> None:
        """Change keys of a limit."""
        limit_id, revision = self._fleets.ask(lambda known: known.set_limit(limit, keys))
        self._finish(_Change(f"limit {limit_id}", revision, [limit_id]))

    def remove(self, limit: str) -> None:
        """Remove a limit from the whole fleet."""
        limit_id, revision = self._fleets.ask(lambda known: known.remove_limit(limit))
        self._finish(_Change(f"limit {limit_id} removed", revision, removed=[limit_id]))

    def _finish(self, change: _Change) -> None:
        _finish(change, self._fleets.applied(change.revision, self._wait_s), self._as_json)


@fleet.command()
@click.argument("name", shell_complete=peer_names)
@click.option("--force", is_flag=True, help="Remove it although it is alive.")
@waiting
@json_option
@_of_fleet
def remove(fleets: Fleets, name: str, force: bool, wait_s: float, as_json: bool) -> None:
    """Remove the member NAME for good: the other limiters take its share.

    Its host must forward nothing any more: a limiter that is merely cut off from etcd continues
    with its share.

    \b
    drlctl fleet remove lim3
    """

    revision = fleets.ask(lambda known: known.remove(name, force=force))
    _finish(_Change(f"{name} removed", revision), fleets.applied(revision, wait_s), as_json)


def _complain(known: Registry) -> None:
    for problem in known.problems.values():
        click.echo(f"drlctl: no limiter can use {problem}", err=True)


class _Change(NamedTuple):
    """A change of the fleet, and the limits that it is about."""

    done: str
    revision: int
    ids: Sequence[int] = ()
    removed: Sequence[int] = ()


def _finish(change: _Change, found: list[Status], as_json: bool) -> None:
    """Show which members have applied a change; exit status 1 if a member that is alive has not."""
    late = [s.name for s in found if s.alive is not None and s.alive.applied < change.revision]
    concerned = [*change.ids, *change.removed]
    refused = {s.name: _refusals(s.alive, concerned) for s in found if s.alive is not None}
    refused = {name: reasons for name, reasons in refused.items() if reasons}
    away = [s.name for s in found if s.alive is None]
    not_in_force = {*late, *refused, *away}
    applied = [s.name for s in found if s.name not in not_in_force]
    if as_json:
        write_json(
            {
                "ids": list(change.ids),
                "revision": change.revision,
                "applied": applied,
                "late": late,
                "refused": refused,
                "away": away,
            }
        )
    else:
        applied_by = f"applied by {len(applied)} of {len(found)}"
        click.echo(f"{change.done}, revision {change.revision}: {applied_by}")
        for name, reasons in refused.items():
            for reason in reasons.values():
                click.echo(f"{name} refuses {reason}")
        for names, what in ((late, "has not applied it yet"), (away, "is away from etcd")):
            for name in names:
                click.echo(f"{name} {what}")
    if late or refused:
        raise click.exceptions.Exit(1)


def _refusals(alive: Alive, ids: Sequence[int]) -> dict[str, str]:
    """The limits that a member refuses, with its reasons: it gives only the first few."""
    refused: dict[str, str] = {}
    for limit_id in ids:
        reasons = [
            (key, reason)
            for key, reason in alive.refused.items()
            if key.endswith(f"/limits/{limit_id}")
        ]
        if not reasons and limit_id in alive.unused:
            reasons = [(f"limits/{limit_id}", f"limit {limit_id}: its drlctl status says why")]
        refused.update(reasons)
    return refused


def _state(status: Status) -> str:
    if status.alive is None:
        return "away"
    return "joined" if status.member.joined else "joining"


def _member_row(status: Status) -> tuple[str, ...]:
    from drld.spec import format_endpoint

    alive = status.alive
    return (
        status.name,
        format_endpoint(*status.member.address),
        _state(status),
        _date(status.member.since),
        NONE if alive is None else str(alive.applied),
        NONE if alive is None else str(_refused_count(alive)),
    )


def _refused_count(alive: Alive) -> int:
    others = [key for key in alive.refused if "/limits/" not in key and "/members/" not in key]
    named = len(others) + len(alive.unused) + len(alive.uncounted)
    return max(named, len(alive.refused))


def _member_json(status: Status) -> dict[str, object]:
    from drld.spec import format_endpoint

    return {
        "name": status.name,
        "address": format_endpoint(*status.member.address),
        "state": _state(status),
        "since": status.member.since,
        "applied": None if status.alive is None else status.alive.applied,
        "refused": {} if status.alive is None else status.alive.refused,
    }


def _tables(known: Registry, ids: Sequence[int]) -> list[object]:
    """The fleet's limits as they were written."""
    import json

    return [json.loads(known.limits[limit_id].raw) for limit_id in ids]


def _limit_row(known: Registry, limit_id: int) -> tuple[str, ...]:
    limit = known.limits[limit_id].value
    policy, unit = limit.policy, limit.policy.unit
    return (
        policy.name,
        policy.means,
        policy.mode.value,
        str(limit.match),
        str(limit_id),
        human_rate(unit.shown_rate(policy.rate), unit.name),
        burst(human_amount(unit.shown_amount(policy.burst), unit.name), policy.burst_is_automatic),
    )


def _date(unix_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))
