"""Where log lines go: text for people, JSON lines, or fields of systemd's journal.

Lines of events are throttled by event and subject, at most `2 * BURST` in any `PERIOD_NS`; others
are not. The text is the same in all forms. The journal's native protocol
(https://systemd.io/JOURNAL_NATIVE_PROTOCOL/) takes fields, and is used if stderr leads to the
journal anyway (JOURNAL_STREAM, systemd.exec(5)). A journal that does not read stops nothing: lines
that it does not take are counted.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any, TextIO

from drld.event_throttle import EventThrottle, Passed
from drld.log_event import with_left_out
from drld.model import NS_PER_S

FORMATS = ("auto", "text", "json", "journal")
BURST, PERIOD_NS = 10, 60 * NS_PER_S
"""A subject that changes all the time makes at most 20 lines a minute."""
JOURNAL = "/run/systemd/journal/socket"
_MAX_CHARACTERS = 48_000
"""Longest value of a field: a datagram to the journal must fit a socket's buffer, 208 KiB by
default."""
_SHOWN = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_SHOWN |= {ord("\t"): "\t", ord("\n"): "\n    "}
"""Characters that a terminal would obey are written out. A line break stays, and what follows is
indented, so that no foreign text in a line can pretend to be another line."""
_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6}
"""Priorities of syslog(3) by Python's levels."""

Fields = dict[str, Any]
Writer = Callable[[logging.LogRecord, str, int], None]
"""Writes a record, its line, and the number of lines that were left out before it."""


class EventHandler(logging.Handler):
    """Throttles events, and writes what is left."""

    def __init__(self, write: Writer, clock: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__()
        self._write = write
        self._clock = clock
        self._throttle: EventThrottle[tuple[logging.LogRecord, str]]
        self._throttle = EventThrottle(BURST, PERIOD_NS)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or only count it."""
        try:
            line = record.getMessage()
            name = getattr(record, "event", None)
            if name is None:
                self._write(record, line, 0)
                return
            key, now_ns = (name, getattr(record, "subject", "")), self._clock()
            self._write_all(self._throttle.admit(key, (record, line), now_ns))
        except Exception:
            self.handleError(record)

    def sum_up(self) -> None:
        """Write the sums that are due; call this now and then."""
        self.acquire()
        try:
            self._write_all(self._throttle.due(self._clock()))
        finally:
            self.release()

    def close(self) -> None:
        """Write all sums: the process ends."""
        self._write_all(self._throttle.rest())
        super().close()

    def _write_all(self, lines: Iterator[Passed[tuple[logging.LogRecord, str]]]) -> None:
        """Write lines. One that cannot be written, as on a full disk, harms no other."""
        for (record, line), left_out in lines:
            try:
                self._write(record, line, left_out)
            except Exception:
                self.handleError(record)


class JournalSocket:
    """Sends entries to the journal, and never waits for it."""

    def __init__(self, path: str, fallback: Writer) -> None:
        self._path = path
        self._fallback = fallback
        self._lost = 0

    def write(self, record: logging.LogRecord, line: str, left_out: int) -> None:
        """Send a record; one that the journal cannot have goes to stderr."""
        fields = journal_fields(record, line, left_out)
        if self._lost:
            fields["DRLD_LOST"] = self._lost
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.sendto(encoded(fields), socket.MSG_DONTWAIT, self._path)
        except BlockingIOError:
            self._lost += 1
        except OSError:
            self._fallback(record, line, left_out)
        else:
            self._lost = 0


def set_up(wanted: str) -> None:
    """Have all loggers write in this format, one of `FORMATS`, to stderr or the journal."""
    text = text_writer(sys.stderr)
    writers: dict[str, Callable[[], Writer]] = {
        "text": lambda: text,
        "json": lambda: json_writer(sys.stderr),
        "journal": lambda: JournalSocket(JOURNAL, text).write,
    }
    if wanted == "auto":
        wanted = "journal" if is_journal(sys.stderr) else "text"
    logging.basicConfig(level=logging.INFO, handlers=[EventHandler(writers[wanted]())])


def sum_up() -> None:
    """Write the sums of the events that are due."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, EventHandler):
            handler.sum_up()


def is_journal(stream: TextIO) -> bool:
    """Whether this is the stream to the journal that systemd gave to this process."""
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # a stream without a file, too
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def text_writer(stream: TextIO) -> Writer:
    """Writes lines for people."""

    def write(record: logging.LogRecord, line: str, left_out: int) -> None:
        stream.write(f"{_text(record, line.translate(_SHOWN), left_out)}\n")
        stream.flush()

    return write


def json_writer(stream: TextIO) -> Writer:
    """Writes one JSON object a line."""

    def write(record: logging.LogRecord, line: str, left_out: int) -> None:
        stream.write(json.dumps(json_fields(record, line, left_out), default=str) + "\n")
        stream.flush()

    return write


def json_fields(record: logging.LogRecord, line: str, left_out: int) -> Fields:
    """The object of a JSON line."""
    at = datetime.fromtimestamp(record.created, timezone.utc)
    found: Fields = {
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": line,
        "event": getattr(record, "event", None),
        **getattr(record, "fields", {}),
        "left_out": left_out or None,
        "trace": _trace(record),
    }
    return {key: value for key, value in found.items() if value is not None}


def journal_fields(record: logging.LogRecord, line: str, left_out: int) -> Fields:
    """The fields of a journal's entry; those of events begin with `DRLD_`."""
    found: Fields = {
        "MESSAGE": _text(record, line, left_out),
        "PRIORITY": _PRIORITIES.get(record.levelno, 7),
        "SYSLOG_IDENTIFIER": "drld",
        "DRLD_LOGGER": record.name,
        "DRLD_EVENT": getattr(record, "event", None),
        **{f"DRLD_{key.upper()}": it for key, it in getattr(record, "fields", {}).items()},
        "DRLD_LEFT_OUT": left_out or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def encoded(fields: Fields) -> bytes:
    """A datagram of the journal's native protocol."""
    return b"".join(_encoded(fields))


def _encoded(fields: Fields) -> Iterator[bytes]:
    for key, value in fields.items():
        text = value if isinstance(value, str | int | float) else json.dumps(value, default=str)
        data = str(text)[:_MAX_CHARACTERS].encode(errors="replace")
        # Always with its length: a value may have line breaks, and so pretend to be other fields.
        yield b"%b\n%b%b\n" % (key.encode(), len(data).to_bytes(8, "little"), data)


def _text(record: logging.LogRecord, line: str, left_out: int) -> str:
    trace = _trace(record)
    text = f"{record.name}: {with_left_out(line, left_out)}"
    return f"{text}\n{trace}" if trace else text


def _trace(record: logging.LogRecord) -> str | None:
    if not record.exc_info:
        return None
    return logging.Formatter().formatException(record.exc_info)
