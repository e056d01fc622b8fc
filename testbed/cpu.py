"""The load of the host's processors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_IDLE_COLUMNS = (3, 4)
"""Columns of /proc/stat: idle, and waiting for input or output."""
_STOLEN_COLUMN = 7
"""Column of /proc/stat: time taken by the host of a virtual machine."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Clock ticks of all processors since boot."""

    idle: int
    stolen: int
    total: int

    @classmethod
    def now(cls) -> CpuTimes:
        """The times of all processors now (/proc/stat)."""
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
        ticks = [int(word) for word in first.split()[1:][: _STOLEN_COLUMN + 1]]
        idle = sum(ticks[column] for column in _IDLE_COLUMNS)
        return cls(idle, ticks[_STOLEN_COLUMN], sum(ticks))

    def until(self, later: CpuTimes) -> dict[str, float]:
        """Shares of the processors' time between two readings: busy, and stolen by the host."""
        total = max(later.total - self.total, 1)
        return {
            "busy": round(1 - (later.idle - self.idle) / total, 3),
            "stolen": round((later.stolen - self.stolen) / total, 4),
        }
