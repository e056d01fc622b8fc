"""Log lines as text, as JSON and as fields of the journal; events are few."""

from __future__ import annotations

import ast
import errno
import io
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drld.daemon import log_output
from drld.daemon.log_output import (
    BURST,
    PERIOD_NS,
    EventHandler,
    JournalSocket,
    is_journal,
    json_writer,
    text_writer,
)
from drld.log_event import event

DRLD = Path(__file__).parents[3] / "drld"
log = logging.getLogger("drld.test")
DEAD = event("peer.state", "b", peer="b", old="alive", new="dead")


def test_every_line_is_an_event() -> None:
    """Programs can tell events apart, and a repeated cause is throttled.

    The client library logs into its application's log, which has no events.
    """
    levels, lines = {"info", "warning", "error", "exception", "critical"}, 0
    for path in {*DRLD.rglob("*.py")} - {*(DRLD / "client").rglob("*.py")}:
        for call in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            owner = call.func.value
            if isinstance(owner, ast.Name) and owner.id == "log" and call.func.attr in levels:
                lines += 1
                assert "extra" in {it.arg for it in call.keywords}, (path, call.lineno)
    assert lines > 30


def test_foreign_text_cannot_pretend_to_be_a_line_nor_command_a_terminal() -> None:
    stream = io.StringIO()
    record = logging.makeLogRecord({"name": "drld", "msg": "etcd says \x1b[2J\x9b\ndrld: ready"})
    text_writer(stream)(record, record.getMessage(), 0)
    assert stream.getvalue() == "drld: etcd says \\x1b[2J\\x9b\n    drld: ready\n"


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def handlers() -> Iterator[list[logging.Handler]]:
    before, level = log.propagate, log.level
    log.propagate = False
    log.setLevel(logging.INFO)
    yield log.handlers
    log.handlers.clear()
    log.propagate = before
    log.setLevel(level)


def test_text_is_for_people(handlers: list[logging.Handler], clock: Clock) -> None:
    stream = io.StringIO()
    handlers.append(EventHandler(text_writer(stream), clock))
    log.warning("peer %s is dead", "b", extra=DEAD)
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("a bug")
    assert stream.getvalue().startswith("drld.test: peer b is dead\ndrld.test: a bug\nTraceback (")
    assert stream.getvalue().endswith("ValueError: why\n")


def test_a_line_of_json_has_the_event_and_its_fields(
    handlers: list[logging.Handler], clock: Clock
) -> None:
    stream = io.StringIO()
    handlers.append(EventHandler(json_writer(stream), clock))
    log.warning("peer %s is dead", "b", extra=DEAD)
    log.info("line\nbreak")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning",
        "logger": "drld.test",
        "message": "peer b is dead",
        "event": "peer.state",
        "peer": "b",
        "old": "alive",
        "new": "dead",
    }
    assert second["message"] == "line\nbreak"
    assert "event" not in second


def test_events_are_few_and_other_lines_are_not(
    handlers: list[logging.Handler], clock: Clock
) -> None:
    stream = io.StringIO()
    handler = EventHandler(text_writer(stream), clock)
    handlers.append(handler)
    for number in range(1000):
        clock.now_ns = number * PERIOD_NS // 1000
        log.warning("peer b is %s", "dead" if number % 2 else "back", extra=DEAD)
        if number < 50:
            log.warning("another")
    lines = stream.getvalue().splitlines()
    assert lines.count("drld.test: another") == 50
    assert len([line for line in lines if "peer b" in line]) == BURST
    clock.now_ns = PERIOD_NS
    handler.sum_up()
    (last,) = stream.getvalue().splitlines()[len(lines) :]
    assert last == "drld.test: peer b is dead (left out before it: 989)"
    for _ in range(BURST + 2):
        log.warning("peer b is back", extra=DEAD)
    handler.close()
    assert stream.getvalue().endswith("peer b is back (left out before it: 2)\n")


def test_a_sum_that_cannot_be_written_harms_nothing(
    handlers: list[logging.Handler], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ticker writes sums: a full disk below the log must not end it."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    written: list[str] = []

    def write(_: logging.LogRecord, line: str, left_out: int) -> None:
        if left_out and "full" in line:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(f"{line}, {left_out}")

    handler = EventHandler(write, clock)
    handlers.append(handler)
    for subject in ("full", "other"):
        for _ in range(BURST + 2):
            log.info("about %s", subject, extra=event("test.sum", subject))
    clock.now_ns = PERIOD_NS
    handler.sum_up()
    assert written[-1] == "about other, 1"
    for subject in ("full", "other"):
        for _ in range(BURST + 2):
            log.info("about %s", subject, extra=event("test.sum", subject))
    handler.close()
    assert written[-1] == "about other, 2"


def received(journal: socket.socket) -> dict[str, str]:
    """The fields of an entry, by the protocol's definition."""
    data, found = journal.recv(1 << 20), {}
    while data:
        key, _, rest = data.partition(b"\n")
        size = int.from_bytes(rest[:8], "little")
        found[key.decode()] = rest[8 : 8 + size].decode()
        assert rest[8 + size : 9 + size] == b"\n"
        data = rest[9 + size :]
    return found


def test_the_journal_gets_fields_and_stops_nothing(
    handlers: list[logging.Handler], clock: Clock, tmp_path: Path
) -> None:
    path, stream = tmp_path / "socket", io.StringIO()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(path))
        sender = JournalSocket(str(path), text_writer(stream))
        handlers.append(EventHandler(sender.write, clock))
        log.warning("peer b is dead\nMESSAGE=forged", extra=DEAD)
        assert received(journal) == {
            "MESSAGE": "drld.test: peer b is dead\nMESSAGE=forged",
            "PRIORITY": "4",
            "SYSLOG_IDENTIFIER": "drld",
            "DRLD_LOGGER": "drld.test",
            "DRLD_EVENT": "peer.state",
            "DRLD_PEER": "b",
            "DRLD_OLD": "alive",
            "DRLD_NEW": "dead",
        }
        log.info("changed", extra=event("limit.changed", new={"rate": "x" * 100_000}))
        assert len(received(journal)["DRLD_NEW"]) == 48_000
        # The journal does not read: lines are lost, and the next says how many.
        for _ in range(10_000):
            log.info("full")
        while received(journal).get("DRLD_LOST") is None:
            log.info("full")
    assert stream.getvalue() == ""
    log.info("it has gone")
    assert stream.getvalue() == "drld.test: it has gone\n"


def test_the_journal_is_known_by_its_stream(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "stderr").open("w") as stream:
        status = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
        assert is_journal(stream)
        monkeypatch.setenv("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino + 1}")
        assert not is_journal(stream)
        monkeypatch.delenv("JOURNAL_STREAM")
        assert not is_journal(stream)
    assert not is_journal(io.StringIO())


@pytest.mark.parametrize("wanted", log_output.FORMATS)
def test_every_format_can_be_set_up(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    made: list[logging.Handler] = []
    monkeypatch.setattr(log_output, "is_journal", lambda _: True)
    monkeypatch.setattr(log_output, "JOURNAL", "/nowhere")
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging, "basicConfig", lambda **given: made.extend(given["handlers"]))
    log_output.set_up(wanted)
    (handler,) = made
    handler.emit(logging.makeLogRecord({"name": "drld", "levelno": 20, "msg": "ready"}))
    line = stream.getvalue()
    assert json.loads(line)["message"] == "ready" if wanted == "json" else line == "drld: ready\n"
