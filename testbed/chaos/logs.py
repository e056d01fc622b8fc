"""What daemons write to their standard error: how much, and what of it is a trace of a bug."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

TRACE = "Traceback (most recent call last)"


@dataclass(slots=True)
class Log:
    """The log of one daemon's life, read as it grows."""

    file: Path
    lines: list[str] = field(default_factory=list)
    _read: int = 0
    _rest: str = ""

    def look(self) -> int:
        """Read on; the number of lines up to now."""
        try:
            with self.file.open("rb") as log:
                log.seek(self._read)
                new = log.read()
        except (FileNotFoundError, ProcessLookupError):
            return len(self.lines)  # gone with the process whose disk it was on
        self._read += len(new)
        *whole, self._rest = (self._rest + new.decode("utf-8", "replace")).split("\n")
        self.lines += whole
        return len(self.lines)


def repeated(lines: list[str]) -> int:
    """How often the line came that came most often, numbers aside."""
    counts: dict[str, int] = {}
    for line in lines:
        shape = "".join("#" if character.isdigit() else character for character in line)
        while "##" in shape:
            shape = shape.replace("##", "#")
        counts[shape] = counts.get(shape, 0) + 1
    return max(counts.values(), default=0)
