"""Other versions of drld, for the fault `upgrade`: from a repository's history, or changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from testbed.chaos.versions import MARK, another_default, earlier
from testbed.errors import HostError

WIRE = "drld/gossip/wire/message.py"


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e", *arguments],
        capture_output=True, check=True,
    )  # fmt: skip


def commit(folder: Path, wire: int, note: str) -> None:
    """Another revision; its `bpf/note` says which."""
    for name, text in (
        ("drld/__init__.py", '__version__ = "1"\n'),
        (WIRE, f"VERSION = {wire}\n# {note}\n"),
        ("bpf/note", note),
    ):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-qm", note)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    git(folder, "init", "-q")
    for wire, note in ((1, "old"), (2, "raised"), (2, "later"), (2, "now")):
        commit(folder, wire, note)
    return folder


def test_the_default_is_the_first_revision_of_this_wire_version(
    history: Path, tmp_path: Path
) -> None:
    folder = earlier(tmp_path / "code", None, history)
    assert (folder / "bpf/note").read_text() == "raised"
    assert (folder / "drld/__init__.py").read_text() == f'__version__ = "1{MARK}"\n'
    assert (tmp_path / "code" / ".venv").is_symlink()


def test_a_chosen_revision_is_exported(history: Path, tmp_path: Path) -> None:
    folder = earlier(tmp_path / "code", "HEAD^", history)
    assert (folder / "bpf/note").read_text() == "later"


def test_another_wire_version_is_refused(history: Path, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="--from HEAD~3: wire version 1 is not 2"):
        earlier(tmp_path / "code", "HEAD~3", history)


def test_a_shallow_clone_says_so(history: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{history}", str(shallow))
    with pytest.raises(HostError, match=r"too shallow .*unshallow"):
        earlier(tmp_path / "code", None, shallow)
    with pytest.raises(HostError, match="--from HEAD~2: this clone does not have that revision"):
        earlier(tmp_path / "code", "HEAD~2", shallow)


def test_another_default_is_one_that_this_version_has(tmp_path: Path) -> None:
    folder = another_default(tmp_path / "code")
    assert "interval: Interval = 60 * MEGA" in (folder / "drld/config/schema.py").read_text()
    assert MARK in (folder / "drld/__init__.py").read_text()
