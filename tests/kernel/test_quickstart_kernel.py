"""docs/quickstart.md does what it says: its commands run, and print what it shows.

The commands run in one shell, in namespaces of their own (network, mounts, processes), with a
private /run: nothing that they start or make outlives the test. The first command, which installs,
is left out: `scripts/setup` has run where tests run.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from .topology import DEADLINE_S

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart.md"

LIMITS_MBIT = (20.0, 40.0)
"""The limits of the page's downloads."""
SECONDS = 30.0
"""The duration of the page's downloads, s."""
MARGIN = 1.2
"""`fair` may exceed the limit by its `margin` while weights change."""
BURST_S = 0.25 * 2**0.5
"""The depths of two buckets of half the limit each, in seconds of the limit."""

END = "end of a block"

READING = re.compile(r"\$ctl\d (peers|limits)|(cat|grep \w+) \S+\.log.*")
"""Commands that change nothing: they are repeated until they print what the page shows."""

MASKED = re.compile(
    r"\d[\d.]*( ?([kMGT]?bit/s|[kMG]?B|[mu]?s|min|h))?\b|tcx|clsact|/\S+/(?=quickstart/)"
)


class Block(NamedTuple):
    """Commands, and what the page shows of their output: None, if it shows nothing."""

    commands: str
    shown: str | None

    @property
    def only_reads(self) -> bool:
        return all(READING.fullmatch(line) for line in self.commands.splitlines())


def blocks() -> list[Block]:
    """The page's blocks of commands, in order."""
    fences = re.findall(r"^```(sh|text)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found: list[Block] = []
    for kind, text in fences:
        if kind == "sh":
            found.append(Block(text, None))
        else:
            found[-1] = found[-1]._replace(shown=text)
    return found


def masked(text: str) -> list[str]:
    """Lines whose measured values and widths of columns are of no account, in any order.

    In a table of limits the columns of the configuration, `IN FORCE` and `FLOWS` count.
    """
    lines = []
    header: list[str] = []
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if "IN FORCE" in cells:
            header = cells
        elif header:
            exact = {*header[: header.index("IN FORCE") + 1], "FLOWS"}
            cells = [
                cell if name in exact else MASKED.sub("#", cell)
                for name, cell in zip(header, cells, strict=True)
            ]
        else:
            cells = [MASKED.sub("#", cell) for cell in cells]
        lines.append("  ".join(cells))
    return sorted(lines)


class Shell:
    """One bash, in namespaces of its own."""

    def __init__(self, directory: Path) -> None:
        script = "mount -t tmpfs none /run && exec bash"
        self._process = subprocess.Popen(
            [
                *("unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc"),
                *("--kill-child", "sh", "-c", script),
            ],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, commands: str) -> str:
        """The output of the commands."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{commands}\necho '{END}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line == f"{END}\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell has ended: {''.join(lines)}")

    def close(self) -> None:
        """End everything that it has started."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "drld").symlink_to(ROOT)
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def output(shell: Shell, block: Block) -> str:
    """The output of a block; one that only reads repeats until it prints the page's output."""
    printed = shell.run(block.commands)
    ends = time.monotonic() + DEADLINE_S
    while block.only_reads and time.monotonic() < ends and not agrees(block, printed):
        printed = shell.run(block.commands)
    return printed


def agrees(block: Block, printed: str) -> bool:
    return masked(printed) == masked(block.shown or "")


def assert_within_the_limit(rates: str, limit_mbit: float) -> None:
    """Each of the page's downloads got some rate, and together they got no more than may pass."""
    flows = [float(rate) for rate in re.findall(r"^10\S+: (\S+) Mbit/s$", rates, re.MULTILINE)]
    (together,) = re.findall(r"^together: (\S+) Mbit/s$", rates, re.MULTILINE)
    assert len(flows) == 4
    assert min(flows) > 0
    assert float(together) <= (MARGIN + BURST_S / SECONDS) * limit_mbit


def test_the_commands_of_the_page_print_its_output(shell: Shell) -> None:
    install, *others = blocks()
    setup, path = install.commands.splitlines()
    assert os.access(ROOT / setup.split()[0], os.X_OK)
    shell.run(f"cd drld && {path}")
    limits = iter(LIMITS_MBIT)
    for block in others:
        printed = output(shell, block)
        assert agrees(block, printed), f"{block.commands}{printed}"
        if "cat rates" in block.commands:
            limit = next(limits)
            assert_within_the_limit(printed, limit)
            assert_within_the_limit(block.shown or "", limit)
    assert list(limits) == []
