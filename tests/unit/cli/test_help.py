"""Every command has help with an example, JSON for programs, and exit codes for scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from drld.cli import main
from tests.fuzz.targets.capture import pcap

from .drlctl import invoke


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
    assert "--json" in text


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


WITHOUT_A_DAEMON: dict[tuple[str, ...], tuple[tuple[str, ...], int]] = {
    ("status",): ((), 1),
    ("limits",): ((), 1),
    ("limit", "add"): (("--name", "a", "--rate", "1mbit", "--out", "eth0"), 1),
    ("limit", "set"): (("a", "--rate", "1mbit"), 1),
    ("limit", "remove"): (("a",), 1),
    ("limit", "pause"): (("a",), 1),
    ("limit", "shadow"): (("a",), 1),
    ("limit", "enforce"): (("a",), 1),
    ("limit", "show"): ((), 1),
    ("limit", "suggest"): (("a",), 1),
    ("limit", "top"): (("--once",), 1),
    ("top",): (("--once",), 1),
    ("topic", "profile"): (("a", "--seconds", "1"), 1),
    ("peers",): ((), 1),
    ("trace",): (("a",), 1),
    ("metrics",): ((), 1),
    ("diff",): ((), 2),
    ("explain",): (("tcp 10.0.0.1:1 > 10.0.0.2:80",), 1),
    ("replay",): (("CAPTURE",), 1),
    ("doctor",): ((), 1),
    ("reload",): ((), 1),
    ("history",): ((), 1),
    ("keys", "list"): ((), 1),
    ("keys", "install"): (("1", "KEY"), 1),
    ("keys", "use"): (("1",), 1),
    ("keys", "remove"): (("1",), 1),
    ("keys", "generate"): (("KEY",), 1),
    ("fleet", "init"): (("DIRECTORY", "a=10.0.0.1"), 1),
    ("fleet", "members"): ((), 1),
    ("fleet", "remove"): (("a",), 1),
    ("completion",): (("bash",), 0),
    ("check",): (("key=value",), 1),
}
"""Arguments of each command, and its exit status where it cannot do what it is asked: no daemon
answers, or the file to make is there. A script is printed by any drlctl."""


def test_every_command_is_in_the_table_of_exit_codes() -> None:
    assert WITHOUT_A_DAEMON.keys() == {*ALL}


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_each_command_has_its_exit_code_without_a_daemon(
    path: tuple[str, ...], tmp_path: Path
) -> None:
    arguments, status = WITHOUT_A_DAEMON[path]
    (capture := tmp_path / "trace.pcap").write_bytes(pcap("<", 0xA1B2C3D4, 101, []))
    key = tmp_path / "key"
    assert invoke("keys", "generate", key).exit_code == 0
    words = {"CAPTURE": capture, "KEY": key, "DIRECTORY": tmp_path}
    given = [words.get(it, it) for it in arguments]
    done = invoke("--socket", tmp_path / "none.sock", *path, *given)
    assert done.exit_code == status, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    if path == ("doctor",):  # It looks at the host without a daemon, and lists what is wrong.
        return
    assert (not done.stdout) == (status > 0), done.stdout
    assert (not done.stderr) == (status == 0)
    assert "Traceback" not in done.stderr
    wrong = invoke(*path, "--no-such-option")
    assert (wrong.exit_code, wrong.stdout) == (2, "")


def test_the_exit_codes_are_told_once() -> None:
    text = " ".join(invoke("--help").stdout.split())
    assert "Exit status: 0 done 1 the daemon cannot be reached, or it, a file or a value" in text
    table = (Path(__file__).parents[3] / "docs/operations.md").read_text()
    for status in re.findall(r" (\d)  ", invoke("--help").stdout.partition("drlctl status")[0]):
        assert f"| {status} | " in table
    differs = " ".join(invoke("diff", "--help").stdout.split())
    assert "Exit status: 0 no difference, 1 some, 2 an error." in differs
    assert invoke("no-such-command").exit_code == 2
    assert invoke("--socket", "/nowhere", "status").exit_code == 1


@pytest.mark.parametrize(
    "given",
    [
        ("replay", "/nowhere.pcap"),
        ("replay", "/"),
        ("replay", "CAPTURE", "--rate", "fast"),
        ("replay", "CAPTURE", "--config", "/nowhere.toml"),
        ("explain", "/nowhere.pcap"),
        ("explain", "nonsense"),
        ("explain", "user=a"),
        ("fleet", "init", "/nowhere/edge", "a=1.1.1.1", "--limits", "/nowhere.toml"),
    ],
)
def test_a_file_or_value_that_is_refused_is_no_wrong_usage(
    given: tuple[str, ...], tmp_path: Path
) -> None:
    (capture := tmp_path / "trace.pcap").write_bytes(pcap("<", 0xA1B2C3D4, 101, []))
    done = invoke(*(str(capture) if it == "CAPTURE" else it for it in given))
    assert (done.exit_code, done.stderr[:8]) == (1, "drlctl: "), done.stderr
