"""`drlctl diff`: what a reload would change."""

from __future__ import annotations

from typing import cast

import click

from drld.cli.client import Daemon, Refused
from drld.cli.in_force import document, tables_in_force
from drld.cli.output import json_option, write_differences, write_json
from drld.control.schema.changes import Difference
from drld.control.schema.status import StatusReport
from drld.reload import check, differences, tables


class _UnknownError(Refused):
    """The command cannot find out what differs."""

    exit_code = 2


@click.command()
@click.argument("file", type=click.Path(), required=False)
@json_option
@click.pass_obj
def diff(daemon: Daemon, file: str | None, as_json: bool) -> None:
    """Show what a reload would change, if FILE took the place of the daemon's own file.

    The drop-ins of the daemon's file stay. Without FILE, its own files are compared with what is in
    force. Exit status: 0 no difference, 1 some, 2 an error.

    \b
    drlctl diff /etc/drld/drld.toml.new && echo no change
    """
    try:
        found, refused = compared(daemon, file)
    except Refused as error:
        raise _UnknownError(error.message) from None
    if as_json:
        write_json({"differences": found, "refused": refused})
    else:
        write_differences(found)
        for line in refused:
            click.echo(f"drlctl: a reload would be refused: {line}", err=True)
    if found:
        raise click.exceptions.Exit(1)


def compared(daemon: Daemon, file: str | None) -> tuple[list[Difference], list[str]]:
    """The differences, and the reasons for which a reload would be refused.

    Raises:
        Refused: the daemon cannot be reached, or a file cannot be used.
    """
    from drld import config
    from drld.errors import ConfigError

    own = cast(StatusReport, daemon.get("/v1/status"))["config"]["file"]
    in_force = tables_in_force(daemon)
    try:
        files = config.read(file or own, config.read_drop_ins(own))
        new = files.spec()
    except ConfigError as error:
        raise Refused("\n".join(error.problems)) from None
    found = [
        Difference(
            table=it.table, change=it.change, keys={key: [*both] for key, both in it.keys.items()}
        )
        for it in differences(in_force, tables(files.merged()))
    ]
    try:
        check(config.from_document(document(in_force), own), new)
    except ConfigError as error:
        return found, error.problems
    return found, []
