"""Stale namespaces: those whose owner has ended, by their names alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import netns
from testbed.errors import HostError


@pytest.fixture
def directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    namespaces, run = tmp_path / "netns", tmp_path / "run"
    namespaces.mkdir()
    run.mkdir()
    monkeypatch.setattr(netns, "NETNS_DIRECTORY", namespaces)
    monkeypatch.setattr(netns, "STATE_DIRECTORY", run)
    return tmp_path


def dead_owner() -> str:
    """The owner's part of a name, for a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return netns.owner(process.pid)


def test_a_name_tells_its_owner() -> None:
    assert netns.namespace("wan").startswith(f"drldtb-{os.getpid()}.")
    assert netns.namespace("wan").endswith("-wan")


def test_only_namespaces_of_dead_owners_are_stale(directories: Path) -> None:
    dead = dead_owner()
    for name in (
        netns.namespace("wan"),
        f"drldtb-{dead}-wan",
        f"drldtb-{dead}-src-f1",
        "drldtb-notes",
        "somebody-else",
    ):
        (directories / "netns" / name).touch()
    (directories / "run" / f"drldtb-{dead}").mkdir()
    netns.state_directory().mkdir()
    assert netns.stale() == (
        [f"drldtb-{dead}-src-f1", f"drldtb-{dead}-wan"],
        [directories / "run" / f"drldtb-{dead}"],
    )
    assert netns.own() == [netns.namespace("wan")]


def test_a_recycled_process_id_is_not_taken_for_the_owner(directories: Path) -> None:
    pid, _, started = netns.owner().partition(".")
    name = f"drldtb-{pid}.{int(started) - 1}-wan"
    (directories / "netns" / name).touch()
    assert netns.stale() == ([name], [])


def test_a_failed_command_is_reported_with_its_output() -> None:
    with pytest.raises(HostError, match=r"sh -c .*: no luck"):
        netns.run(["sh", "-c", "echo no luck >&2; exit 3"])
    assert netns.run(["sh", "-c", "echo fine; exit 3"], check=False) == "fine\n"
    with pytest.raises(HostError, match="no-such-command"):
        netns.run(["no-such-command"])
