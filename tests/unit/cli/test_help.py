"""Every command has help with an example, and writes JSON for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from drld.cli import main

from .drlctl import invoke

NO_JSON = {("metrics",), ("completion",)}
"""What they print is for programs as it is."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The names that lead to each command of the tree."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


ALL = [*commands(main)]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_an_example_and_json(path: tuple[str, ...]) -> None:
    shown = invoke(*path, "--help")
    assert (shown.exit_code, shown.stderr) == (0, "")
    usage, _, text = shown.stdout.partition("\n")
    command = " ".join(("drlctl", *path))
    assert usage.startswith(f"Usage: {command}")
    # `limit top` is `top`, whose example has the shorter name.
    assert re.search(rf"^  +(?:.*; |.*\| |sudo )?drlctl (?:.* )?{path[-1]}\b", text, re.MULTILINE)
    assert ("--json" in text) == (path not in NO_JSON)


def test_lists_of_commands_cut_no_summary() -> None:
    for path in ((), ("limit",), ("keys",), ("fleet",)):
        listed = invoke(*path, "--help").stdout.partition("Commands:")[2]
        assert len(listed) > 100
        assert "..." not in listed


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_option_is_explained(path: tuple[str, ...]) -> None:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    options = [it for it in command.params if isinstance(it, click.Option)]
    assert [it.name for it in options if not it.help] == []


def test_the_exit_codes_are_told_once() -> None:
    text = " ".join(invoke("--help").stdout.split())
    assert "Exit status: 0 done, 1 the daemon cannot be reached or refuses, 2 wrong usage" in text
    differs = " ".join(invoke("diff", "--help").stdout.split())
    assert "Exit status: 0 no difference, 1 some, 2 an error." in differs
    assert invoke("no-such-command").exit_code == 2
    assert invoke("--socket", "/nowhere", "status").exit_code == 1
