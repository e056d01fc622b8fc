"""drlctl: look at a running daemon and its fleet; change limits and keys; reload.

One command a file; what is shared is the client and the output. The exit statuses are in the help
and in docs/operations.md.
"""

from __future__ import annotations

import sys
from io import TextIOWrapper

import click

from drld import __version__
from drld.cli.client import Daemon
from drld.cli.completion import completion
from drld.cli.diff import diff
from drld.cli.doctor import doctor
from drld.cli.explain import explain
from drld.cli.fleet import fleet
from drld.cli.history import history
from drld.cli.keys import keys
from drld.cli.limit import limit
from drld.cli.limits import limits
from drld.cli.metrics import metrics
from drld.cli.output import Commands
from drld.cli.peers import peers
from drld.cli.reload import reload
from drld.cli.replay import replay
from drld.cli.status import status
from drld.cli.top import top
from drld.cli.trace import trace
from drld.planes import registered


@click.group(cls=Commands)
@click.option(
    "--socket",
    type=click.Path(readable=False),  # To connect says why it fails, whatever the reason is.
    envvar="DRLD_CONTROL",
    metavar="PATH",
    help="Control socket of the daemon; default: $DRLD_CONTROL, else the only one in /run/drld "
    "and $XDG_RUNTIME_DIR/drld.",
)
@click.version_option(__version__, message="drlctl %(version)s")
@click.pass_context
def main(context: click.Context, socket: str | None) -> None:
    """Look at a running drld and its fleet, change limits and keys, and reload it.

    \b
    Exit status:
      0  done
      1  the daemon cannot be reached, or it, a file or a value is refused;
         doctor: something is wrong; diff: something differs
      2  wrong usage: unknown, missing or contradictory options or arguments;
         diff: any error
      3  check: the request is refused

    \b
    drlctl status
    drlctl --socket /run/drld/lim1.sock limit show --json
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal may lack a character, and a name of a file may be none of any encoding.
            stream.reconfigure(errors="backslashreplace")
    context.obj = Daemon(socket)


for command in (
    *(status, limits, limit, top, peers, trace, metrics, diff, explain, replay),
    *(doctor, reload, history, keys, fleet, completion),
    *(command for plane in registered("commands") for command in plane.COMMANDS),
):
    main.add_command(command)
