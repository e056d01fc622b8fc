"""`drlctl doctor`: checks of this host and its daemon, with reasons and remedies."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import click

from drld import __version__
from drld.cli.client import Daemon, Refused
from drld.cli.diff import compared
from drld.cli.output import json_option, write_fields, write_json
from drld.control.schema.peers import PeerReport
from drld.control.schema.status import StatusReport
from drld.planes import registered

if TYPE_CHECKING:
    from drld.doctor.finding import Finding
    from drld.spec import LimiterSpec

DEFAULT_FILE = "/etc/drld/drld.toml"
_MISTAKES_SHOWN = 5


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(),
    metavar="FILE",
    help=f"Configuration to check; default: the daemon's own, or {DEFAULT_FILE}.",
)
@click.option("--all", "everything", is_flag=True, help="Also show what is in order.")
@json_option
@click.pass_obj
def doctor(daemon: Daemon, file: str | None, everything: bool, as_json: bool) -> None:
    """Check this host and its daemon, if one runs. Show what is wrong, why it matters, what to do.

    Datapaths are tried in a network namespace of their own, and only the cache of compiled programs
    may change. Without root some checks cannot look, and say so. Exit status: 0 nothing is wrong, 1
    something is.

    \b
    sudo drlctl doctor
    """
    from drld.doctor.finding import Level

    found = list(_examine(daemon, file))
    wrong = any(it.level is Level.WRONG for it in found)
    if as_json:
        write_json(
            {"wrong": wrong, "findings": [{**asdict(it), "level": it.level.value} for it in found]}
        )
    else:
        quiet = () if everything else (Level.OK,)
        for it in found:
            if it.level not in quiet:
                write_fields(_fields(it))
        counted = [sum(it.level is level for it in found) for level in Level]
        named = ", ".join(
            f"{count} {level.value}" for count, level in zip(counted, Level, strict=True)
        )
        click.echo(f"{len(found)} checks: {named}")
    if wrong:
        raise click.exceptions.Exit(1)


def _fields(found: Finding) -> list[tuple[str, str]]:
    detail = [(name, text) for name, text in (("  why", found.why), ("  do", found.do)) if text]
    return [(f"{found.level.value:<6}", f"{found.check}: {found.what}"), *detail]


def _examine(daemon: Daemon, file: str | None) -> Iterator[Finding]:
    # These imports are slow, and other commands do without them.
    from drld.config import remarks
    from drld.doctor import fleet, host
    from drld.doctor.facts import host as facts
    from drld.doctor.finding import Examined, remark

    status: StatusReport | None = None
    try:
        status = cast(StatusReport, daemon.get("/v1/status"))
    except (Refused, click.UsageError) as error:
        yield remark(
            "daemon",
            error.format_message(),
            "a stopped daemon limits nothing; what a killed one left does as on_failure says",
            "systemctl status drld   # or give its socket: drlctl --socket PATH doctor",
        )
    pid = status["pid"] if status else None
    held = facts.capabilities(pid)
    path = file or (status["config"]["file"] if status else DEFAULT_FILE)
    spec, mistakes = _read(path)
    yield from mistakes
    examined = Examined(spec, status, held, root=os.geteuid() == 0)
    yield from host.namespaces(facts.namespaces(pid))
    if status is not None:
        reports = cast(list[PeerReport], daemon.get("/v1/peers"))
        yield from fleet.daemon(status, __version__)
        yield from fleet.configuration(status, _differing(daemon))
        yield from fleet.peers(status, reports)
        yield from fleet.gossip(status)
        if status["registry"] is not None:
            yield from fleet.registry(status["registry"])
    if spec is not None:
        for line in remarks(spec):
            key, _, text = line.partition(": ")
            yield remark(key, text, "the daemon runs with it", f"edit {path}")
        yield host.port(facts.port(*spec.listen, pid))
        yield from host.firewall(facts.chains(), spec.listen[1])
        yield from host.ways(list(facts.ways(spec)))
        yield from host.files(facts.files(spec, path), facts.user(pid))
        yield from host.drop_ins(f"{path}.d", facts.not_read(path))
        registry = spec.registry
        https = registry is not None and any(it.startswith("https") for it in registry.endpoints)
        yield from host.clocks(facts.clocks(https))
    yield from host.buffers(facts.buffers(held))
    for plane in registered("doctor"):
        yield from cast("Iterable[Finding]", plane.findings(examined))


def _read(path: str) -> tuple[LimiterSpec | None, list[Finding]]:
    """Return the configuration of a file and its drop-ins, or the reason why the daemon cannot use
    it."""
    from drld import config
    from drld.doctor.finding import ok, unseen, wrong
    from drld.errors import ConfigError

    check = "configuration file"
    try:
        spec = config.load(path)
    except ConfigError as error:
        if os.geteuid() != 0 and any(os.strerror(errno.EACCES) in it for it in error.problems):
            return None, [unseen(check, error.problems[0], "sudo drlctl doctor")]
        why, do = "the daemon does not start with it", f"drld --config {path} --check"
        return None, [wrong(check, it, why, do) for it in error.problems[:_MISTAKES_SHOWN]]
    return spec, [ok(check, f"{path}: limits: {len(spec.limits)}, peers: {len(spec.peers)}")]


def _differing(daemon: Daemon) -> list[str] | None:
    """Return the names of the tables that a reload would change; None: they are unknown."""
    try:
        found, _ = compared(daemon, None)
    except Refused:
        return None
    return [it["table"] for it in found]
