"""A full disk below everything that drld writes: limits stay, and errors name the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.netns import run

from . import preloaded
from .daemon_host import CENTRAL, Daemons, on_one

NO_SPACE = "No space left on device"
CHANGES = 40
"""Changes whose lines in the history need more than a page, which the last file may have left."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    run(f"mount -t tmpfs -o size=256k tmpfs {mounted}".split())
    yield mounted
    run(["umount", "--lazy", str(mounted)])


def fill(disk: Path) -> Path:
    """Fill the disk by a file; return it."""
    filling = disk / "filling"
    run(["sh", "-c", f"! cat /dev/zero > {filling}"])
    return filling


@on_one
def test_a_daemon_on_a_full_disk_keeps_its_limits_and_says_what_is_not_written(
    daemons: Daemons, disk: Path
) -> None:
    daemon = daemons("lim1")
    daemon.config = disk / "lim1.toml"
    daemon.environment["STATE_DIRECTORY"] = str(disk)
    daemon.configure({"customer-a": CENTRAL})
    daemon.start()
    drop_in = disk / "lim1.toml.d" / "99-drlctl.toml"
    filling = fill(disk)

    refused = daemon.ctl("limit", "set", "customer-a", "--rate", "99kbit", "--save", check=False)
    assert refused.stderr == f"drlctl: {drop_in}: cannot be written: {NO_SPACE}\n"
    assert refused.returncode == 1
    assert daemon.limit("customer-a")["rate_bps"] == 10_000
    assert [*drop_in.parent.iterdir()] == []

    for rate in range(11, 11 + CHANGES):
        daemon.post("/v1/limits/customer-a/set", {"set": {"rate": f"{rate}kbit"}})
    assert daemon.limit("customer-a")["rate_bps"] == (10 + CHANGES) * 1000
    history = disk / "lim1.history.jsonl"
    assert f"the history of limits is not kept: {history}: {NO_SPACE}" in daemon.log
    daemon.post("/v1/reload")
    assert daemon.limit("customer-a")["rate_bps"] == 10_000

    filling.unlink()
    daemon.ctl("limit", "set", "customer-a", "--rate", "99kbit", "--save")
    changes = daemon.get("/v1/history")
    assert len(changes) == CHANGES + 3  # the start, the reload, and the saved change
    assert daemon.stop() == 0
    assert daemon.wait_for_state("STOPPING=1")
    daemon.start()
    assert daemon.get("/v1/history")[1:] == changes
    assert daemon.limit("customer-a")["rate_bps"] == 99_000


@on_one
def test_a_daemon_starts_and_stops_in_order_while_its_log_cannot_be_written(
    daemons: Daemons, disk: Path
) -> None:
    daemon = daemons("lim1")
    daemon.log_path = disk / "log"
    daemon.log_path.touch()
    daemon.configure({"customer-a": CENTRAL})
    fill(disk)
    daemon.start()
    assert daemon.limit("customer-a")["rate_bps"] == 10_000
    assert daemon.stop() == 0
    assert daemon.log == ""


def test_the_doctor_names_files_on_a_full_disk(disk: Path) -> None:
    config = disk / "lim1.toml"
    config.write_text('limit = []\n[limiter]\nname = "lim1"\nlisten = "127.0.0.1:7946"\n')
    for full in (False, True):
        if full:
            fill(disk)
        report = json.loads(
            preloaded.run("drld.cli", "doctor", "--config", str(config), "--json").stdout
        )
        what = [it["what"] for it in report["findings"] if it["check"] == "disk"]
        assert what == ([f"no space left for {config}"] if full else [])


def test_commands_on_a_full_disk_leave_no_part_of_a_file(disk: Path) -> None:
    filling = fill(disk)
    fleet = ("fleet", "init", str(disk / "edge"), "lim1=10.0.0.1", "lim2=10.0.0.2")
    for command, file in (
        (("keys", "generate", str(disk / "key")), disk / "key"),
        (fleet, disk / "edge" / "fleet.key"),
    ):
        refused = preloaded.run("drld.cli", *command)
        assert (refused.returncode, refused.stderr) == (1, f"drlctl: {file}: {NO_SPACE}\n")
    assert [*disk.iterdir()] == [filling]
    filling.unlink()
    assert preloaded.run("drld.cli", *fleet).returncode == 0
