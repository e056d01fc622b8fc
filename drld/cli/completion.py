"""`drlctl completion SHELL`, and completion of names that the running daemon knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import get_completion_class

from drld.cli.client import Daemon
from drld.cli.output import json_option, write_json

_TIMEOUT_S = 0.5
"""The shell waits for the daemon's answer. No names are better than a shell that hangs."""
_DRLD = {
    "bash": "complete -f -W '--config --check --version --help' drld",
    "zsh": "_drld() { _arguments '--config[configuration]:file:_files' --check --version --help }\n"
    "compdef _drld drld",
    "fish": "complete -c drld -l config -r -F\n"
    "complete -c drld -f -l check\ncomplete -c drld -f -l version",
}
"""Scripts for the daemon's own options, which are few and do not change."""


@click.command()
@click.argument("shell", type=click.Choice([*_DRLD]))
@json_option
@click.pass_context
def completion(context: click.Context, shell: str, as_json: bool) -> None:
    """Print a script that makes a shell complete drlctl and drld, with names of limits and peers.

    \b
    drlctl completion bash > /etc/bash_completion.d/drlctl
    drlctl completion zsh > /usr/share/zsh/site-functions/_drlctl
    drlctl completion fish > /etc/fish/completions/drlctl.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root().command
    source = made(root, {}, "drlctl", "_DRLCTL_COMPLETE").source().strip()
    script = f"{source}\n{_DRLD[shell]}"
    if as_json:
        write_json({"shell": shell, "script": script})
    else:
        click.echo(script)


def _names(path: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A function that completes the names of the objects at a path of the control API."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        daemon = Daemon(context.find_root().params.get("socket"), _TIMEOUT_S)
        try:
            found: list[dict[str, Any]] = daemon.get(path)
            return [it["name"] for it in found if it["name"].startswith(incomplete)]
        except click.ClickException:
            return []

    return complete


limit_names = _names("/v1/limits")
peer_names = _names("/v1/peers")
