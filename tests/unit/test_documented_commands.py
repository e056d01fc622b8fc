"""Each command in the documents has words, options and values that its program knows.

The commands are not carried out: some take hours, or need a fleet. The quickstart's are
(tests/kernel/test_quickstart_kernel.py).
"""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest

from testbed.experiment_file import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "results").glob("*.md")),
]  # fmt: skip
"""The changelog also names commands that are gone."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
INSTALLED = {"drlctl": "drld.cli", "drld": "drld.daemon.command_line"}
SCRIPTS = {
    "scripts/bench": "testbed.bench",
    "scripts/chaos": "testbed.chaos",
    "scripts/reproduce": "testbed.reproduce",
}
KINDS = {"requests": "testbed.chaos.keyed", "messages": "testbed.chaos.messages"}
"""The suites of faults that the first word behind `scripts/chaos` chooses."""
ENDS = {"&", "&&", "|", ";", ">", "<", "2>"}
"""Words with which a command ends."""


def shell_lines(page: Path) -> Iterator[tuple[str, bool]]:
    """The lines of blocks of code, and code in sentences; each with whether it is of a block."""
    text = page.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    for language, block in FENCE.findall(text):
        if language in ("sh", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                yield line, True
    for line in re.findall(r"^    (\S.*)$", prose, re.M):
        yield line, True
    for code in re.findall(r"`([^`]+)`", prose):
        yield " ".join(code.split()), False


def commands(page: Path) -> Iterator[tuple[str, list[str], bool]]:
    """The commands of our programs on a page, as module and arguments."""
    for line, whole in shell_lines(page):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a line of prose
            continue
        words = words[1:] if words[:1] == ["sudo"] else words
        end = next((at for at, word in enumerate(words) if word in ENDS), len(words))
        # A placeholder, such as NAME, stands for any value.
        words = [re.sub(r"^[A-Z]+$", "1", word) for word in words[:end]]
        if "…" in words:
            continue
        match words:
            case ["drlctl" | "drld" as installed, *rest]:
                if rest:
                    yield installed, rest, whole
            case [".venv/bin/python" | "python", "-m", module, *rest]:
                if module.startswith(("testbed", "tests.", "drld.")):
                    yield module, rest, whole
            case ["scripts/chaos" | "./scripts/chaos", "requests" | "messages" as kind, *rest]:
                yield KINDS[kind], rest, whole
            case [script, *rest] if script.removeprefix("./") in SCRIPTS:
                yield SCRIPTS[script.removeprefix("./")], rest, whole


def program(module: str) -> Any:
    """The module of a program: its function `main` starts it."""
    if module in INSTALLED:
        return import_module(INSTALLED[module])
    started = (ROOT / module.replace(".", "/") / "__main__.py").exists()
    return import_module(f"{module}.__main__" if started else module)


def parse(command: click.Command, words: Sequence[str], parent: click.Context | None) -> None:
    """Parse the words as the program would, without starting anything."""
    context = command.make_context(command.name or "", list(words), parent=parent)
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        parse(inner, rest, context)


def problem(module: str, words: Sequence[str], whole: bool, patch: pytest.MonkeyPatch) -> str:
    """The mistake that a program finds in its arguments; empty: none.

    A command in a sentence, which is not `whole`, may lack arguments.
    """
    if module in ("testbed", "testbed.sim") and words[:1] == ["run"]:
        file = EXPERIMENTS / f"{words[1]}.toml"
        if not file.exists():
            return f"there is no {file.name}"
    started = program(module)
    if not hasattr(started, "main"):
        return "" if not words else "takes no arguments"
    if isinstance(started.main, click.Command):
        return problem_of_click(started.main, words, whole)
    if "parse_args" in inspect.getsource(started):
        return problem_of_argparse(started, words, whole, patch)
    return "" if not words else "takes no arguments"


def problem_of_click(command: click.Command, words: Sequence[str], whole: bool) -> str:
    """See `problem`."""
    try:
        parse(command, words, None)
    except click.exceptions.Exit:  # --help
        return ""
    except click.MissingParameter as error:
        return error.format_message() if whole else ""
    except click.UsageError as error:
        text = error.format_message()
        # Files of examples, such as trace.pcap, are not there. A sentence may name a group.
        absent = re.search("does not exist|No such file", text)
        return "" if absent or (not whole and text.startswith("Usage:")) else text
    return ""


def problem_of_argparse(
    started: Any, words: Sequence[str], whole: bool, patch: pytest.MonkeyPatch
) -> str:
    """See `problem`. The program ends when it has parsed its arguments."""
    known = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        known(parser, list(words))
        raise SystemExit("")

    def refuse(_parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise SystemExit(message)

    patch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    patch.setattr(argparse.ArgumentParser, "error", refuse)
    told = "it does not parse its arguments"
    try:
        started.main()
    except SystemExit as end:
        told = str(end.code)
    return told if whole or "are required" not in told else ""


@pytest.mark.parametrize(
    ("module", "words", "told"),
    [
        ("drlctl", "limit set web --rat 1mbit", "No such option '--rat'"),
        ("drlctl", "limit ad", "No such command 'ad'"),
        ("drlctl", "limit set", "Missing argument 'LIMIT'"),
        ("drld", "--config a.toml --chek", "unrecognized arguments: --chek"),
        ("testbed.chaos", "kill-on", "'kill-on' is not one of"),
        ("testbed.sim", "run any-rt", "there is no any-rt.toml"),
        ("tests.sim.failures", "--seeds many", "invalid int value: 'many'"),
        ("drld.config.reference", "all", "takes no arguments"),
    ],
)
def test_a_mistake_is_found(
    module: str, words: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told in problem(module, words.split(), True, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.relative_to(ROOT)}")
def test_commands_have_arguments_that_their_programs_know(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for module, words, whole in commands(page):
        with monkeypatch.context() as patch:
            if told := problem(module, words, whole, patch):
                found.append(f"{module} {shlex.join(words)}: {told}")
    assert found == []


def test_there_are_many_commands() -> None:
    """Otherwise the pages would have another form than this test expects."""
    assert sum(len(list(commands(page))) for page in PAGES) > 200
