"""The history of limits: each change with its time, its origin, and the old and new values.

The last changes are in memory as lines of JSON, and in a file of the state directory, if there is
one. Both are bounded: the oldest go first. The file is appended to. At twice the size of the memory
it is written again from memory. A line that a crash has torn is left out when the file is read.
"""

from __future__ import annotations

import json
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import trio

from drld.config.atomic_file import replace_by, write_beside
from drld.config.regular_file import read_regular
from drld.control.schema.changes import HistoryEntry
from drld.daemon.origin import Origin
from drld.limit_values import changed_limits
from drld.log_event import event
from drld.spec import LimitSpec

log = logging.getLogger("drld")

MAX_BYTES = 512 * 1024
"""Size of all lines in memory: about 1,000 changes of two keys."""
MAX_LISTED = 100
"""Limits of one change of the configuration with a line each: a reload of 10,000 must not be all
that is left."""
_MODE = 0o600


class History:
    """The changes of one limiter's limits."""

    def __init__(self, file: Path | None) -> None:
        """Read the file if it exists."""
        self.file = file
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._unwritten: list[str] = []
        self._file_bytes = 2 * MAX_BYTES
        """Size of the file. This first value makes the first write replace the file, without torn
        lines."""
        self._noted = trio.Event()
        self._writing = trio.Lock()
        self._failed = False
        if file is not None:
            for line in _read(file):
                self._remember(line)

    def note(
        self, old: Iterable[LimitSpec], new: Iterable[LimitSpec], origin: Origin, now: float
    ) -> None:
        """Remember what differs, at this Unix time."""
        found = changed_limits(old, new)
        for it in found[:MAX_LISTED]:
            what = "added" if it.old is None else "removed" if it.new is None else "changed"
            limit = it.limit
            self._add(_entry(now, what, origin, limit.name, limit.id, keys=it.keys()))
        if len(found) > MAX_LISTED:
            self._add(_entry(now, "more", origin, count=len(found) - MAX_LISTED))

    def started(self, limits: int, now: float) -> None:
        """Remember that the daemon has started, with so many limits."""
        self._add(_entry(now, "started", Origin("start"), count=limits))

    def entries(self) -> Iterator[HistoryEntry]:
        """The changes, the newest first."""
        return (json.loads(line) for line in reversed(tuple(self._lines)))

    async def keep(self) -> None:
        """Write what is noted, until cancelled."""
        while True:
            await self._noted.wait()
            self._noted = trio.Event()
            await self.write()

    async def write(self) -> None:
        """Bring the file up to date. If that fails, the log says so; the next change retries."""
        async with self._writing:
            if (job := self._take()) is not None:
                self._end(job, await trio.to_thread.run_sync(job.error))

    def flush(self) -> None:
        """Do the work of `write`, and block until it is done."""
        if (job := self._take()) is not None:
            self._end(job, job.error())

    def _take(self) -> _Write | None:
        """The lines that the file lacks; None: it lacks none."""
        lines = self._unwritten
        if self.file is None or not lines:
            return None
        self._unwritten = []
        text = "".join(lines)
        if self._file_bytes + len(text) <= 2 * MAX_BYTES:
            return _Write(self.file, lines, text, replaces=False)
        return _Write(self.file, lines, "".join(self._lines), replaces=True)

    def _end(self, job: _Write, error: OSError | None) -> None:
        """Note the outcome of a write."""
        if error is None:
            self._file_bytes = len(job.text) + (0 if job.replaces else self._file_bytes)
        else:
            self._unwritten = job.lines + self._unwritten
            self._file_bytes = 2 * MAX_BYTES  # A part may have been written.
            if not self._failed:
                log.warning(
                    "the history of limits is not kept: %s: %s",
                    *(job.file, error.strerror),
                    extra=event("history.failed", file=str(job.file), reason=error.strerror),
                )
        self._failed = error is not None

    def _add(self, entry: HistoryEntry) -> None:
        line = json.dumps(entry, separators=(",", ":")) + "\n"
        self._remember(line)
        if self.file is not None:
            self._unwritten.append(line)
            # Lines that memory has forgotten go to no file either.
            del self._unwritten[: -len(self._lines)]
            self._noted.set()

    def _remember(self, line: str) -> None:
        self._lines.append(line)
        self._bytes += len(line)
        while self._bytes > MAX_BYTES:
            self._bytes -= len(self._lines.popleft())


@dataclass(frozen=True, slots=True)
class _Write:
    """A write to the file. It has all that it needs, as a thread does it while changes go on."""

    file: Path
    lines: list[str]
    """The lines that the file lacks."""
    text: str
    """These lines, or all lines in memory if they replace the file."""
    replaces: bool

    def error(self) -> OSError | None:
        """Write; return the reason if the host refuses."""
        try:
            if self.replaces:
                replace_by(self.file, write_beside(self.file, self.text, _MODE))
            else:
                _append(self.file, self.text)
        except OSError as error:
            return error
        return None


def _entry(
    now: float,
    change: str,
    origin: Origin,
    limit: str = "",
    limit_id: int | None = None,
    *,
    keys: dict[str, list[str | None]] | None = None,
    count: int = 1,
) -> HistoryEntry:
    return HistoryEntry(
        t=now,
        limit=limit,
        id=limit_id,
        change=change,
        count=count,
        keys=keys or {},
        via=origin.via,
        uid=origin.uid,
        user=origin.user,
        login=origin.login,
        pid=origin.pid,
        revision=origin.revision,
        saved=origin.saved,
    )


def _append(file: Path, text: str) -> None:
    # To open a pipe without a reader would wait.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(file, flags, _MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _read(file: Path) -> list[str]:
    """The sound lines of a file, as far as there may be."""
    try:
        data = read_regular(file, 2 * MAX_BYTES, last=True)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        log.warning(
            "the history of limits is not read: %s: %s",
            *(file, reason),
            extra=event("history.failed", file=str(file), reason=reason),
        )
        return []
    return [line for line in data.decode(errors="replace").splitlines(True) if _sound(line)]


def _sound(line: str) -> bool:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not line.endswith("\n") or not isinstance(entry, dict):
        return False
    number, text = (int, type(None)), (str, type(None))
    sound: dict[str, type | tuple[type, ...]] = {
        "t": (int, float),
        "limit": str,
        "id": number,
        "change": str,
        "count": int,
        "keys": dict,
        "via": str,
        **dict.fromkeys(("uid", "pid", "revision"), number),
        **dict.fromkeys(("user", "login"), text),
        "saved": bool,
    }
    return entry.keys() == sound.keys() and all(
        isinstance(entry[key], kind) for key, kind in sound.items()
    )
