"""The cost of a process, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.crew import Child
from testbed.errors import MeasurementError

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(process: Child) -> float:
    """Processor time used by a process, with its threads and the kernel's work for it.

    Raises:
        MeasurementError: it ended.
    """
    stat = _read(process, "stat")
    fields = stat[stat.rindex(")") + 2 :].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def status_bytes(process: Child, field: str) -> int:
    """A size in /proc/PID/status, such as `VmRSS`.

    Raises:
        MeasurementError: it ended.
    """
    for line in _read(process, "status").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise MeasurementError(f"{process.name} ended")


def _read(process: Child, file: str) -> str:
    try:
        return Path(f"/proc/{process.pid}/{file}").read_text(encoding="ascii")
    except FileNotFoundError:
        raise MeasurementError(f"{process.name} ended") from None
