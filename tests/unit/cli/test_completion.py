"""Completion, with each shell for real: what a Tab after these words offers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.control_fake import FakeDaemon, served

from .drlctl import invoke

ROOT = Path(__file__).resolve().parents[3]
BASH = """
source <(drlctl completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
spec=$(complete -p "$1")
function=${spec#*-F }
"${function%% *}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf "%s\\n" "${COMPREPLY[@]}"
"""
ZSHRC = """
fpath=($ZDOTDIR/site $fpath)
autoload -Uz compinit && compinit -u -d $ZDOTDIR/dump
[[ -e $ZDOTDIR/site/_drlctl ]] || source <(drlctl completion zsh)
zstyle ':completion:*' completer _all_matches _complete
zstyle ':completion:*' insert true
report() { print -r -- $BUFFER >$ZDOTDIR/typed; exit }
zle -N report
bindkey '^T' report
"""
"""Tab writes all completions into the line, and Control-T the line into a file."""


def run(directory: Path, *command: str, typed: str = "", **environment: str) -> str:
    """The output of a command that finds drlctl and drld."""
    for name in ("drlctl", "drld"):
        # The name of the program is that of the shell's function.
        program = directory / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            "from drld.cli import main\nmain(prog_name='drlctl')\n"
        )
        program.chmod(0o755)
    path = f"{directory}/bin:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        input=typed,
        env={**os.environ, "PATH": path, "HOME": str(directory), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout


def bash(directory: Path, *words: str) -> set[str]:
    return set(run(directory, "bash", "-c", BASH, "bash", *words).split())


def zsh(directory: Path, *words: str) -> set[str]:
    """zsh completes at a terminal alone."""
    (directory / ".zshrc").write_text(ZSHRC)
    (directory / "typed").unlink(missing_ok=True)
    line = " ".join(words)
    shell = ("script", "-qec", "zsh -d -i", "/dev/null")
    run(directory, *shell, typed=f"{line}\t\x14", ZDOTDIR=str(directory), TERM="dumb")
    before = line.rpartition(" ")[0]
    return set((directory / "typed").read_text().removeprefix(before).split())


def zsh_with_a_file(directory: Path, *words: str) -> set[str]:
    """The completions of zsh with a file of functions, as the package installs it."""
    (directory / "site").mkdir(exist_ok=True)
    (directory / "site" / "_drlctl").write_text(invoke("completion", "zsh").stdout)
    return zsh(directory, *words)


def fish(directory: Path, *words: str) -> set[str]:
    script = "source (drlctl completion fish | psub); complete -C $argv[1]"
    found = run(directory, "fish", "-c", script, "--", " ".join(words))
    return {line.partition("\t")[0] for line in found.splitlines()}


Tab = Callable[..., set[str]]
each_shell = pytest.mark.parametrize("tab", [bash, zsh, fish])


@each_shell
async def test_names_of_the_running_daemon_are_completed(tmp_path: Path, tab: Tab) -> None:
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


@each_shell
def test_without_a_daemon_verbs_are_completed_and_no_names(tmp_path: Path, tab: Tab) -> None:
    assert {"pause", "shadow", "enforce"} <= tab(tmp_path, "drlctl", "limit", "")
    assert tab(tmp_path, "drlctl", "--socket", str(tmp_path / "none"), "trace", "") == set()


@pytest.mark.parametrize("tab", [zsh, zsh_with_a_file, fish])
def test_files_and_options_of_the_daemon_are_completed(tmp_path: Path, tab: Tab) -> None:
    file = tmp_path / "limits.toml"
    file.touch()
    assert tab(tmp_path, "drlctl", "diff", f"{tmp_path}/li") == {str(file)}
    options = {"--config", "--check", "--log-format", "--version", "--help"}
    assert tab(tmp_path, "drld", "--") == options
    assert tab(tmp_path, "drld", "--log-format", "") == {"auto", "text", "json", "journal"}
    assert tab(tmp_path, "drld", "--config", f"{tmp_path}/li") == {str(file)}


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
    assert bash(tmp_path, "drlctl", *words) == offered


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
