"""drlctl history."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from drld.control.schema.changes import HistoryEntry
from tests.control_fake import FakeDaemon

from .drlctl import drlctl, lines, output

T = 1_700_000_000
CHANGED = HistoryEntry(
    t=T, limit="a", id=1, change="changed", count=1,
    keys={"rate": ["10mbit", "20mbit"], "match.out": [None, "eth1"]}, via="control",
    uid=0, user="root", login="alice", pid=7, revision=None, saved=True,
)  # fmt: skip
REMOVED = HistoryEntry(
    t=T - 60, limit="\x1b[2Jb", id=2, change="removed", count=1,
    keys={"name": ["b", None], "rate": ["1mbit", None]}, via="control",
    uid=1000, user=None, login=None, pid=7, revision=None, saved=False,
)  # fmt: skip
MORE = HistoryEntry(
    t=T - 120, limit="", id=None, change="more", count=900, keys={}, via="registry",
    uid=None, user=None, login=None, pid=None, revision=41, saved=False,
)  # fmt: skip
STARTED = HistoryEntry(
    t=T - 180, limit="", id=None, change="started", count=3, keys={}, via="start",
    uid=None, user=None, login=None, pid=None, revision=None, saved=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def changes(daemon: FakeDaemon) -> None:
    daemon.entries = [CHANGED, REMOVED, MORE, STARTED]


async def test_the_newest_change_comes_first(control: Path) -> None:
    assert await output(control, "history") == lines("""
        2023-11-14 22:13:20 UTC  limit a changed by root (logged in as alice), pid 7, through drlctl or the control API, saved
            rate: 10mbit -> 20mbit
            match.out: (left out) -> eth1
        2023-11-14 22:12:20 UTC  limit ?[2Jb removed by uid 1000, pid 7, through drlctl or the control API
            rate: 1mbit
        2023-11-14 22:11:20 UTC  and 900 limits more by the fleet's registry, revision 41
        2023-11-14 22:10:20 UTC  drld started, limits: 3
    """)  # noqa: E501 -- as wide as it is


async def test_options_choose_a_limit_and_a_time(control: Path, daemon: FakeDaemon) -> None:
    async def found(*options: str) -> list[HistoryEntry]:
        entries: list[HistoryEntry] = json.loads(
            await output(control, "history", "--json", *options)
        )
        return entries

    assert await found() == daemon.entries
    assert await found("--limit", "a") == await found("--limit", "1") == [CHANGED]
    assert await found("--since", "2023-11-14 22:12:00") == [CHANGED, REMOVED]
    assert await found("--since", "2023-11-14T23:12:30+01:00") == [CHANGED]
    daemon.entries[0]["t"] = time.time() - 1800
    assert await found("--since", "1h") == [daemon.entries[0]]
    done = await drlctl(control, "history", "--limit", "nix")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "no changes are known\n")
    done = await drlctl(control, "history", "--since", "yesterday")
    assert done.exit_code == 2
    assert 'a duration such as "2h"' in done.stderr
