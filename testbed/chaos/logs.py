"""The daemons' standard error: the number of lines, and traces of bugs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

TRACE = "Traceback (most recent call last)"
_NEWS = re.compile(
    r"drld: (?:(peer \S+) (?:is (?:dead|back)|has left|has \w+ \w+ (configuration))"
    r"|no peer answers|peers answer)"
)


@dataclass(slots=True)
class Log:
    """The log of one run of a daemon, read as it grows."""

    file: Path
    lines: list[str] = field(default_factory=list)
    _read: int = 0
    _rest: str = ""

    def look(self) -> int:
        """Read new lines; return the number of lines up to now."""
        try:
            with self.file.open("rb") as log:
                log.seek(self._read)
                new = log.read()
        except (FileNotFoundError, ProcessLookupError):
            return len(self.lines)  # it was on a disk of its process, which has ended
        self._read += len(new)
        *whole, self._rest = (self._rest + new.decode("utf-8", "replace")).split("\n")
        self.lines += whole
        return len(self.lines)


def news(line: str) -> str | None:
    """The subject of a line about peers (`drld.daemon.peer_log`); None for other lines."""
    found = _NEWS.search(line)
    if found is None:
        return None
    peer, limits = found.groups()
    return f"{peer}'s {'limits' if limits else 'verdict'}" if peer else "answers"


def most_news(lines: Iterable[str]) -> int:
    """The number of lines about the subject with the most lines."""
    things = Counter(thing for thing in map(news, lines) if thing is not None)
    return max(things.values(), default=0)
