"""`drlctl reload`: the daemon reads its configuration files again."""

from __future__ import annotations

from typing import cast

import click

from drld.cli.client import Daemon, Problems
from drld.cli.output import json_option, write_json
from drld.control.schema.status import ConfigReport


@click.command()
@json_option
@click.pass_obj
def reload(daemon: Daemon, as_json: bool) -> None:
    """Have the daemon read its files again. A bad file changes nothing; unsaved changes are lost.

    `drlctl diff` shows beforehand what a reload changes.

    \b
    drlctl diff; drlctl reload
    """
    try:
        config = cast(ConfigReport, daemon.post("/v1/reload"))
    except Problems as error:
        if as_json:
            write_json({"problems": error.problems})
        raise
    if as_json:
        write_json(config)
    else:
        click.echo(f"{config['file']} is in force")
        if config["dropped"]:
            click.echo(f"unsaved changes are dropped: {', '.join(config['dropped'])}")
