"""A configuration that is in force is known and in the log, whatever comes after it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from drld.config import drop_ins
from drld.config.changes import Change
from drld.config.toml_text import toml
from drld.control.credentials import Credentials
from drld.control.schema.live import Event
from drld.daemon.event_log import EventLog
from drld.daemon.history import History
from drld.daemon.notify import Manager
from drld.daemon.origin import Origin
from drld.daemon.reloader import Reloader, read_configuration
from drld.errors import ConfigError
from drld.spec import LimiterSpec
from tests.control_fake import CONFIGURATION

BY = Credentials(pid=1, uid=0, gid=0)
CHANGE = Change("set", [{"mode": "pause"}], "customer-a")
SAVED = replace(CHANGE, save=True)


class Enforcer:
    """Takes every configuration over, and then ends the client that asked for it."""

    def __init__(self) -> None:
        self.unlike: dict[str, list[str]] = {}
        self.engine = SimpleNamespace(
            spec=CONFIGURATION.in_force, limits={}, disagreements=lambda: self.unlike
        )
        self.client = trio.CancelScope()
        self.leaves = True
        self.saved: list[bool] = []

    def limit_names(self) -> set[str]:
        return {limit.name for limit in self.engine.spec.limits}

    async def prepare(self, spec: LimiterSpec) -> None:
        pass

    def take_over(
        self, spec: LimiterSpec, *, origin: object, save: Callable[[], bool] = lambda: False
    ) -> None:
        self.engine.spec = spec
        self.saved.append(save())
        if self.leaves:
            self.client.cancel()


class Stage:
    """A reloader with the changes that it has logged."""

    def __init__(self, file: Path = Path("a.toml")) -> None:
        self.enforcer = Enforcer()
        self.events = EventLog()
        self.reloader = Reloader(
            file,
            CONFIGURATION,
            cast(Any, self.enforcer),
            None,
            history=History(None),
            events=self.events,
            manager=Manager(),
        )

    def logged(self) -> list[Event]:
        return [event for event in self.events.after(0) if event["kind"] == "change"]


async def test_a_change_is_completed_though_its_client_leaves() -> None:
    stage = Stage()
    with stage.enforcer.client:
        await stage.reloader.change_limits(CHANGE, BY)
    assert stage.enforcer.client.cancelled_caught
    assert stage.reloader.configuration is not CONFIGURATION
    (event,) = stage.logged()
    assert event["text"] == (
        "limit customer-a changed (until a restart or a reload): mode: (left out) -> 'pause'"
    )


@pytest.mark.parametrize(
    ("found", "needed_at"),
    [([], ["lim2"]), (["customer-a"], ["lim2"]), (["customer-a (not there)"], [])],
)
async def test_a_change_is_needed_at_peers_that_have_the_limit(
    found: list[str], needed_at: list[str]
) -> None:
    stage = Stage()
    stage.enforcer.unlike = {"lim2": found}
    faster = Change("set", [{"rate": "20mbit"}], "customer-a")
    report = await stage.reloader.change_limits(faster, BY)
    assert report["needed_at"] == needed_at


async def test_a_limit_of_the_fleet_is_not_changed_for_one_daemon() -> None:
    stage = Stage()
    limits = CONFIGURATION.in_force.limits
    of_fleet = replace(limits[0], policy=replace(limits[0].policy, name="shared"))
    stage.enforcer.engine.spec = replace(CONFIGURATION.in_force, limits=(*limits, of_fleet))
    with pytest.raises(
        ConfigError, match=r"shared: is a limit of the fleet's registry \(--fleet\)"
    ):
        await stage.reloader.change_limits(replace(CHANGE, limit="shared"), BY)
    assert stage.reloader.configuration is CONFIGURATION
    assert stage.logged() == []


async def test_a_reload_is_completed_though_its_client_leaves(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(toml(CONFIGURATION.files.document).replace("10mbit", "20mbit"))
    stage = Stage(file)
    with stage.enforcer.client:
        await stage.reloader.reload(Origin("reload"))
    assert stage.enforcer.client.cancelled_caught
    # Otherwise the next change would be made to the old files, and revert the reload.
    assert stage.reloader.configuration.in_force is stage.enforcer.engine.spec
    assert stage.enforcer.engine.spec.limits != CONFIGURATION.in_force.limits
    assert [event["kind"] for event in stage.events.after(0)] == ["reload"]


async def test_a_change_whose_drop_in_cannot_be_renamed_stays_in_force_unsaved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stage_with_files(tmp_path)

    def refused(file: Path, beside: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("drld.daemon.reloader.replace_by", refused)
    with pytest.raises(ConfigError, match="in force, but not saved: No space left on device"):
        await stage.reloader.change_limits(SAVED, BY)
    assert stage.reloader.configuration.unsaved_names() == ["customer-a"]
    assert stage.enforcer.saved == [False]
    (event,) = stage.logged()
    assert "until a restart or a reload" in event["text"]
    assert not [*drop_ins(str(tmp_path / "a.toml")).iterdir()]


@pytest.mark.parametrize("survives", [True, False])
async def test_a_saved_change_is_one_that_survives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: bool
) -> None:
    stage = stage_with_files(tmp_path)
    synced: list[int] = []

    def fsync(descriptor: int) -> None:
        inode = os.fstat(descriptor)
        synced.append(inode.st_ino)
        if stat.S_ISDIR(inode.st_mode) and not survives:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("os.fsync", fsync)
    if survives:
        await stage.reloader.change_limits(SAVED, BY)
    else:
        with pytest.raises(ConfigError, match="a loss of power may undo that: Input/output error"):
            await stage.reloader.change_limits(SAVED, BY)
    directory = drop_ins(str(tmp_path / "a.toml"))
    (saved,) = directory.iterdir()
    assert synced == [saved.stat().st_ino, directory.stat().st_ino]
    assert stage.enforcer.saved == [True]
    assert stage.reloader.configuration.unsaved_names() == []


def stage_with_files(directory: Path) -> Stage:
    """A reloader of a file on disk, whose clients stay."""
    file = directory / "a.toml"
    file.write_text(toml(CONFIGURATION.files.document))
    stage = Stage(file)
    stage.reloader.configuration = read_configuration(file)
    stage.enforcer.leaves = False
    return stage
