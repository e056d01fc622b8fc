"""Bytes at the sink, sampled while faults happen, as a process of its own. Unlike in an experiment
nobody knows for how long, and interfaces may vanish and come back.

It is as urgent to the host as the daemons are and no more: where its samples or a processor's beats
come late, the host kept them waiting, too (`Seen.late_s`).
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
"""A reading that took longer is of no time in particular."""
_TRIES = 5


class Counters:
    """What each limiter forwarded, as the kernel counts it at the sink."""

    def __init__(self, devices: Mapping[str, str]) -> None:
        """`devices`: those of the sink, by limiter."""
        self._devices = devices
        self._bases = dict.fromkeys(devices, 0)
        self._last = dict.fromkeys(devices, 0)

    def take(self, counted: Mapping[tuple[str, str], int]) -> dict[str, int]:
        """Bytes up to now, of the counters of interfaces that are there."""
        values = {}
        for limiter, device in self._devices.items():
            last = self._last[limiter]
            value = counted.get((device, "rx"), last)
            if value < last:
                # Another interface of this name, which counts from 0.
                self._bases[limiter] += last
            self._last[limiter] = value
            values[limiter] = self._bases[limiter] + value
        return values


def timed(read: Callable[[], str], clock: Callable[[], float]) -> tuple[float, str]:
    """What is read, and when: again where the host stopped in between."""
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
