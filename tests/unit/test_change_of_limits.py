"""A change of limits that is in force is in the log, whatever comes after it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from drld.config.changes import Change, Configuration
from drld.control.credentials import Credentials
from drld.daemon.process import Daemon
from drld.errors import ConfigError
from tests.control_fake import CONFIGURATION

BY = Credentials(pid=1, uid=0, gid=0)
CHANGE = Change("set", [{"mode": "pause"}], "customer-a")


class Stage:
    """What `Daemon.change_limits` uses of a daemon."""

    def __init__(self) -> None:
        self.logged: list[bool] = []
        self.client = trio.CancelScope()
        self._configuration = CONFIGURATION
        self._one_reload = SimpleNamespace(alone=self._alone)
        self._history = SimpleNamespace(write=trio.lowlevel.checkpoint)

    @asynccontextmanager
    async def _alone(self) -> Any:
        yield

    def _names(self) -> set[str]:
        return set()

    async def _put_in_force(self, *_: object) -> None:
        self.client.cancel()

    def _changed_limits(self, _before: object, _after: object, saved: bool) -> None:
        self.logged.append(saved)


async def test_where_its_client_leaves() -> None:
    stage = Stage()
    with stage.client:
        await Daemon.change_limits(cast(Any, stage), CHANGE, BY)
    assert stage.client.cancelled_caught
    assert stage._configuration is not CONFIGURATION
    assert stage.logged == [False]


def test_where_the_drop_in_cannot_be_put_in_place(tmp_path: Path) -> None:
    stage = Stage()
    with pytest.raises(ConfigError, match="the change is in force, but not saved"):
        Daemon._save(cast(Any, stage), tmp_path / "gone", CHANGE, CONFIGURATION)
    assert isinstance(stage._configuration, Configuration)
    assert stage.logged == [False]
