"""Samples the bytes at the sink during faults, as a process of its own. Unlike in an experiment the
duration is unknown, and interfaces may be removed and made again.

It has the same priority as the daemons. If its samples or a processor's beats are late, the host
made the daemons wait, too (`Seen.late_s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from testbed import child
from testbed.beats import Beats
from testbed.chaos.series import SAMPLE_S
from testbed.chaos.urgency import be_urgent
from testbed.measure import ip_bytes, open_table, read_table

_EXACT_S = 0.002
"""A reading that took longer has no exact time."""
_TRIES = 5


class Counters:
    """Bytes forwarded by each limiter, from the kernel's counters at the sink."""

    def __init__(self, devices: Mapping[str, str]) -> None:
        """`devices`: the sink's interfaces, by limiter."""
        self._devices = devices
        self._bases = dict.fromkeys(devices, 0)
        self._last = dict.fromkeys(devices, 0)

    def take(self, counted: Mapping[tuple[str, str], int]) -> dict[str, int]:
        """Bytes up to now, from the counters of existing interfaces."""
        values = {}
        for limiter, device in self._devices.items():
            last = self._last[limiter]
            value = counted.get((device, "rx"), last)
            if value < last:
                # A new interface of this name counts from 0.
                self._bases[limiter] += last
            self._last[limiter] = value
            values[limiter] = self._bases[limiter] + value
        return values


def timed(read: Callable[[], str], clock: Callable[[], float]) -> tuple[float, str]:
    """A reading with its time; repeated if the host stopped in between."""
    for _ in range(_TRIES):
        before_s = clock()
        text = read()
        after_s = clock()
        if after_s - before_s <= _EXACT_S:
            break
    return (before_s + after_s) / 2, text


def work() -> None:
    """Sample until dismissed; `devices` of this namespace, by limiter."""
    job = child.receive()
    table = open_table()
    be_urgent()
    counters = Counters(job["devices"])
    due_s = time.monotonic()
    with Beats() as beats:
        while True:
            time_s, text = timed(lambda: read_table(table), time.monotonic)
            forwarded = counters.take(ip_bytes(text))
            child.send(time_s=time_s, forwarded=forwarded, late_s=beats.take())
            due_s = max(due_s + SAMPLE_S, time.monotonic())
            time.sleep(max(due_s - time.monotonic(), 0.0))


if __name__ == "__main__":
    child.main(work)
