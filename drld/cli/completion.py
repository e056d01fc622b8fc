"""`drlctl completion SHELL`, and the values that a Tab offers.

They are names that the daemon or the host knows, and the words that a key of a limit may be.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args, get_origin

import click
from click.shell_completion import get_completion_class

from drld.cli.client import Daemon
from drld.cli.output import json_option, write_json

_TIMEOUT_S = 0.5
"""The shell waits for the daemon's answer. No names are better than a shell that hangs."""
_DRLD = {
    "bash": "complete -f -W '--config --check --log-format --version --help' drld",
    "zsh": "_drld() { _arguments '--config[configuration]:file:_files' --check --version --help "
    "'--log-format[form of the log]:format:(auto text json journal)' }",
    "fish": "complete -c drld -l config -r -F\ncomplete -c drld -f -l check\n"
    "complete -c drld -f -l help\ncomplete -c drld -f -l version\n"
    "complete -c drld -x -l log-format -a 'auto text json journal'",
}
"""Scripts for the daemon's own options, which are few and do not change."""
_ZSH_END = """
# zsh reads this file from its path to complete one of the two, and ~/.zshrc to complete both later.
case $service in
    drlctl) _drlctl_completion "$@" ;;
    drld) _drld ;;
    *) compdef _drlctl_completion drlctl; compdef _drld drld ;;
esac
""".strip()


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
    if shell == "zsh":
        source = source.removeprefix("#compdef drlctl").partition("\nif [[ $zsh_eval")[0].strip()
    script = f"{source}\n{_DRLD[shell]}"
    if shell == "zsh":
        script = f"#compdef drlctl drld\n\n{script}\n{_ZSH_END}"
    if as_json:
        write_json({"shell": shell, "script": script})
    else:
        click.echo(script)


Complete = Callable[[click.Context, click.Parameter, str], list[str]]
"""Returns the values of a parameter that begin with a text (`shell_complete` of click)."""


def _names(path: str) -> Complete:
    """A function that completes the names of the objects at a path of the control API."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        daemon = Daemon(context.find_root().params.get("socket"), _TIMEOUT_S)
        try:
            found: list[dict[str, Any]] = daemon.get(path)
            return [it["name"] for it in found if it["name"].startswith(incomplete)]
        except click.ClickException:
            return []

    return complete


def _offered(find: Callable[[], Iterable[str]]) -> Complete:
    """A function that completes the values that `find` returns."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
        return [it for it in find() if it.startswith(incomplete)]

    return complete


def words(key: str) -> Complete:
    """A function that completes the words that this key of a limit may be, in any plane."""

    def find() -> Iterable[str]:
        # To import the tables takes longer than the rest of drlctl.
        from drld.allocators import ALLOCATORS
        from drld.config.plane_tables import planes
        from drld.planes import registered

        found = [*ALLOCATORS] if key == "allocator" else []
        for table in (each for plane in planes() for each in (plane.limit, plane.match)):
            for name, field in table.model_fields.items():
                if key == (field.alias or name):
                    found += _literals(field.annotation)
        for plane in registered("target_options"):
            found += getattr(plane, "WORDS", {}).get(key, ())
        return dict.fromkeys(found)

    return _offered(find)


def _literals(kind: object) -> list[str]:
    """The texts that a type of the configuration allows by name."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return [*parts]
    return [text for part in parts for text in _literals(part)]


def _fabrics() -> Iterable[str]:
    from drld.gossip.fabrics import FABRICS

    return FABRICS


limit_names = _names("/v1/limits")
peer_names = _names("/v1/peers")
interfaces = _offered(lambda: (it for _, it in socket.if_nameindex() if it.isprintable()))
fabrics = _offered(_fabrics)
