"""The history of limits: what is noted, how much is kept, and what a restart finds."""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from drld import config
from drld.control.credentials import Credentials
from drld.daemon import history
from drld.daemon.history import History
from drld.daemon.origin import Origin, origin_of, state_directory
from drld.limit_values import MAX_CHARACTERS, changed_limits, limit_values
from drld.spec import LimitSpec
from drld.units import Unit

FILE = """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"
[[limit]]
id = 1
name = "a"
rate = "10mbit"
shares = { lim1 = 1.0 }
excess = "mark"
match = { out = "eth1", destination = "10.0.0.0/8" }
[[limit]]
id = 2
name = "b"
rate = "1mbit"
burst = "75kB"
allocator = { name = "fps" }
match = { in = "eth1" }
"""
A, B = config.parse(FILE, "f").limits
BY = Origin("control", uid=0, pid=7, user="root", login="alice")


def rated(limit: LimitSpec, rate: int) -> LimitSpec:
    return replace(limit, policy=replace(limit.policy, rate=rate))


def test_a_limit_is_written_as_its_file_has_it() -> None:
    values = limit_values(A)
    some = {
        "name": "a",
        "rate": "10mbit",
        "burst": "auto",
        "mode": "enforce",
        "excess": "mark",
        "interval": "50ms",
        "shares.lim1": "1.0",
        "match.out": "eth1",
        "match.destination": "10.0.0.0/8",
    }
    assert {key for key in values if key.startswith("match.")} == {"match.out", "match.destination"}
    assert some.items() <= values.items()
    assert limit_values(B)["burst"] == "75kB"
    assert any(key.startswith("allocator.") for key in limit_values(B))
    calls = Unit("calls", 10, 10, 10**6, 10**6)
    other = replace(A.policy, unit=calls, rate=500, burst=40, burst_is_automatic=False)
    assert limit_values(replace(A, policy=other))["rate"] == "50 calls/s"
    named = replace(A.policy, flow="x" * 1000)
    assert limit_values(replace(A, policy=named))["flow"] == "x" * MAX_CHARACTERS


def test_a_target_is_written_as_its_file_has_it() -> None:
    rest = 'protocol = "tcp", source_port = [80, "8000-8100"], mark = "0x10/0xff", source = "::1" }'
    (limit, _) = config.parse(FILE.replace('destination = "10.0.0.0/8" }', rest), "f").limits
    assert limit.match.written() == {
        "out": "eth1",
        "source": "::1/128",
        "protocol": "tcp",
        "source_port": "80, 8000-8100",
        "mark": "0x10/0xff",
    }


def test_limits_are_compared_by_id() -> None:
    moved = replace(B, policy=replace(B.policy, id=3))
    changed, removed, added = changed_limits([A, B], [rated(A, 2_500_000), moved])
    assert changed.keys() == {"rate": ["10mbit", "20mbit"]}
    assert removed.keys()["rate"] == ["1mbit", None]
    assert added.keys()["rate"] == [None, "1mbit"]
    assert changed_limits([A, B], config.parse(FILE, "f").limits[::-1]) == []


def test_changes_are_recorded() -> None:
    kept = History(None)
    kept.started(1, 99.5)
    kept.note([A], [rated(A, 2_500_000), B], BY, 100.0)
    added, changed, started = kept.entries()
    assert (added["change"], added["limit"], added["id"]) == ("added", "b", 2)
    assert changed == {
        "t": 100.0,
        "limit": "a",
        "id": 1,
        "change": "changed",
        "count": 1,
        "keys": {"rate": ["10mbit", "20mbit"]},
        "via": "control",
        "uid": 0,
        "user": "root",
        "login": "alice",
        "pid": 7,
        "revision": None,
        "saved": False,
    }
    assert (started["change"], started["count"], started["t"]) == ("started", 1, 99.5)
    kept.note([A], [A], BY, 101.0)
    assert len(list(kept.entries())) == 3


def test_a_change_of_many_limits_leaves_room_for_others() -> None:
    many = [replace(A, policy=replace(A.policy, id=number)) for number in range(1, 1001)]
    kept = History(None)
    kept.note([], many, Origin("signal"), 0)
    more, *listed = kept.entries()
    assert (more["change"], more["count"]) == ("more", 1000 - history.MAX_LISTED)
    assert len(listed) == history.MAX_LISTED


async def test_memory_and_file_are_bounded_and_a_restart_finds_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 2000)
    file = tmp_path / "lim1.history.jsonl"
    kept = History(file)
    sizes = []
    for number in range(1, 100):
        kept.note([rated(A, 1250 * number)], [rated(A, 1250 * (number + 1))], BY, number)
        await kept.write()
        sizes.append(file.stat().st_size)
        assert sum(map(len, map(json.dumps, kept.entries()))) <= 2300
    assert max(sizes) <= 4000
    assert sizes != sorted(sizes)
    assert file.stat().st_mode & 0o777 == 0o600
    found = list(kept.entries())
    assert [entry["t"] for entry in found[:3]] == [99, 98, 97]
    # A crash tore the last line, and something else wrote another.
    with file.open("a") as stream:
        stream.write('{"t": 1}\nnull\n[]\n{"t":100,"limit":"a"')
    again = History(file)
    assert list(again.entries())[: len(found)] == found
    again.started(1, 200)
    again.flush()
    assert [entry["t"] for entry in History(file).entries()][:2] == [200, 99]


async def test_a_change_while_a_thread_writes_is_in_the_file_once(tmp_path: Path) -> None:
    kept = History(tmp_path / "lim1.history.jsonl")

    class Lines(deque[str]):
        """The lines in memory: if a thread reads them, a change comes first."""

        def __iter__(self) -> Iterator[str]:
            if threading.current_thread() is not threading.main_thread():
                trio.from_thread.run_sync(kept.started, 2, 2)
            return super().__iter__()

    kept._lines = Lines()
    for number in (1, 3):
        kept.started(number, number)
        await kept.write()
    found = [entry["t"] for entry in History(kept.file).entries()]
    assert found == sorted(set(found), reverse=True)


def test_a_file_that_cannot_be_written_is_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "there" / "lim1.history.jsonl"
    file.parent.write_text("in the way")
    kept = History(file)
    for number in range(3):
        kept.started(number, number)
        kept.flush()
    (line,) = [entry.getMessage() for entry in caplog.records if "not kept" in entry.getMessage()]
    assert str(file) in line
    file.parent.unlink()
    kept.started(3, 3)
    kept.flush()
    assert [entry["t"] for entry in History(file).entries()] == [3, 2, 1, 0]


@pytest.mark.parametrize("name", ["lim1.history.jsonl", "lim1.history.jsonl.new"])
def test_a_pipe_in_place_of_a_file_keeps_nothing_waiting(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / name)
    file = tmp_path / "lim1.history.jsonl"
    kept = History(file)
    for number in range(2):
        kept.started(number, number)
        kept.flush()
    (line,) = caplog.messages
    assert line.startswith("the history of limits is not ")
    assert str(file) in line
    assert [entry["t"] for entry in History(file).entries()] == [1, 0]


def test_the_origin_of_a_change_is_recorded() -> None:
    origin = origin_of("control", Credentials(os.getpid(), os.getuid(), os.getgid()))
    assert (origin.uid, origin.pid) == (os.getuid(), os.getpid())
    nobody = origin_of("reload", Credentials(0, 4_000_000_000, 0))
    assert (nobody.user, nobody.login) == (None, None)


def test_systemd_chooses_the_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert state_directory() is None
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/drld:/var/lib/other")
    assert state_directory() == Path("/var/lib/drld")
