"""The commands of docs/messages-verification.md exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.bench.registry import BENCHMARKS
from testbed.chaos.message_faults import FAULTS
from testbed.messages.__main__ import main
from testbed.reproduce.registry import FIGURES, GROUPS
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "messages-verification.md").read_text()


def named(command: str) -> set[str]:
    """The words behind a command that are no options and no values of options."""
    found = re.findall(rf"`{re.escape(command)} ([^`]*)`", PAGE)
    words = {word for text in found for word in text.split()}
    return {word for word in words if re.fullmatch(r"[a-z][a-z0-9-]*", word)}


def test_every_path_exists() -> None:
    paths = set(re.findall(r"(?:tests|scripts)/[\w./-]+", PAGE))
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("MESSAGES", {*main.commands}),
        ("scripts/bench", {*BENCHMARKS}),
        ("scripts/chaos messages", {*FAULTS}),
        ("scripts/reproduce", {*FIGURES, *GROUPS}),
        ("scripts/fuzz", {*TARGETS}),
    ],
)
def test_every_name_behind_a_command_exists(command: str, known: set[str]) -> None:
    assert named(command)
    assert named(command) <= known
