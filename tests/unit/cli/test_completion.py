"""Completion, with bash for real: what a Tab after these words offers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.control_fake import FakeDaemon, served

from .drlctl import invoke

ROOT = Path(__file__).resolve().parents[3]
TAB = """
PATH="$1:$PATH"
source <(drlctl completion bash)
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
spec=$(complete -p "$1")
function=${spec#*-F }
"${function%% *}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf "%s\\n" "${COMPREPLY[@]}"
"""


def tab(directory: Path, *words: str) -> set[str]:
    """The completions that bash offers for the last of these words."""
    (directory / "bin").mkdir(exist_ok=True)
    command = directory / "bin" / "drlctl"
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from drld.cli import main; main()" "$@"\n'
    )
    # The name of the program is that of the shell's function.
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from drld.cli import main\nmain(prog_name='drlctl')\n"
    )
    command.chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", TAB, "bash", str(command.parent), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return set(done.stdout.split())


async def test_names_of_the_running_daemon(tmp_path: Path) -> None:
    path = tmp_path / "lim1.sock"
    async with served(FakeDaemon(), path):
        for words, offered in (
            (("limit", "set", ""), {"customer-a", "b"}),
            (("limit", "show", "cus"), {"customer-a"}),
            (("fleet", "remove", ""), {"lim2", "lim3"}),
        ):
            found = await trio.to_thread.run_sync(
                tab, tmp_path, "drlctl", "--socket", str(path), *words
            )
            assert found == offered


def test_verbs_and_no_names_without_a_daemon(tmp_path: Path) -> None:
    assert {"pause", "shadow", "enforce"} <= tab(tmp_path, "drlctl", "limit", "")
    nowhere = str(tmp_path / "none")
    assert tab(tmp_path, "drlctl", "--socket", nowhere, "trace", "") == set()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("limit", "add", "--mode", ""), {"enforce", "shadow", "pause"}),
        (("limit", "set", "b", "--on-failure", "c"), {"closed"}),
        (("limit", "set", "b", "--excess", ""), {"drop", "mark", "refuse", "wait"}),
        (("limit", "set", "b", "--allocator", "fa"), {"fair"}),
        (("limit", "add", "--protocol", "sct"), {"sctp"}),
        (("limit", "add", "--client", ""), {"id", "user", "address"}),
        (("limit", "add", "--out", "l"), {"lo"}),
        (("fleet", "init", "edge", "--fabric", ""), {"mesh", "pushsum", "tree"}),
        (("top", "--sort", "ex"), {"excess"}),
    ],
)
def test_values_are_completed(tmp_path: Path, words: tuple[str, ...], offered: set[str]) -> None:
    assert tab(tmp_path, "drlctl", *words) == offered


@pytest.mark.parametrize(
    "words", ["diff", "limit add", "doctor --config", "--socket", "fleet init edge --limits"]
)
def test_files_are_completed_where_a_command_takes_one(words: str) -> None:
    asked = {
        "_DRLCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": f"drlctl {words} lim",
        "COMP_CWORD": str(1 + len(words.split())),
    }
    assert invoke(env=asked).stdout == "file,lim\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_of_each_shell_completes_both_programs(shell: str) -> None:
    shown = invoke("completion", shell)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert f"_DRLCTL_COMPLETE={shell}_complete" in shown.stdout
    for option in ("config", "log-format"):
        assert f"--{option}" in shown.stdout.replace("-l ", "--")
    assert (shell == "zsh") == shown.stdout.startswith("#compdef drlctl drld\n")
    found = json.loads(invoke("completion", shell, "--json").stdout)
    assert found == {"shell": shell, "script": shown.stdout.removesuffix("\n")}
