"""The commands of the pages that say how to verify each promise exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.bench.registry import BENCHMARKS
from testbed.chaos.message_faults import FAULTS as MESSAGE_FAULTS
from testbed.chaos.registry import FAULTS
from testbed.messages.__main__ import main
from testbed.reproduce.registry import FIGURES, GROUPS
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    name: (ROOT / "docs" / f"{name}-verification.md").read_text()
    for name in ("operations", "requests", "messages")
}
OF_PLANES = [
    ("scripts/bench", {*BENCHMARKS}),
    ("scripts/reproduce", {*FIGURES, *GROUPS}),
    ("scripts/fuzz", {*TARGETS}),
]
"""The commands on the pages of both planes, and the names that each knows."""


def named(page: str, command: str) -> set[str]:
    """The words behind a command that are no options and no values of options."""
    found = re.findall(rf"`{re.escape(command)} ([^`]*)`", PAGES[page])
    words = {word for text in found for word in text.split()}
    return {word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    paths = set(re.findall(r"(?:tests|scripts)/[\w./-]+", PAGES[page]))
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("page", "command", "known"),
    [
        *((page, *it) for page in ("requests", "messages") for it in OF_PLANES),
        ("operations", "scripts/chaos", {*FAULTS}),
        ("messages", "MESSAGES", {*main.commands}),
        ("messages", "scripts/chaos messages", {*MESSAGE_FAULTS}),
    ],
)
def test_every_name_behind_a_command_exists(page: str, command: str, known: set[str]) -> None:
    assert named(page, command)
    assert named(page, command) <= known
