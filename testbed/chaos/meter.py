"""Bytes at the sink, sampled while faults happen. Unlike in an experiment nobody knows for how
long, and interfaces may vanish and come back."""

from __future__ import annotations

import os
import time

import trio

from testbed import netns
from testbed.chaos.series import Series
from testbed.measure import ip_bytes, open_table, read_table
from testbed.topology import sink_device

SAMPLE_S = 0.02


class Meter:
    """What each limiter forwarded, as the kernel counts it at the sink."""

    def __init__(self, sink: str, limiters: tuple[str, ...]) -> None:
        """`sink` is its namespace."""
        self.series = Series()
        self._devices = {limiter: sink_device(limiter) for limiter in limiters}
        self._table = netns.within(sink, open_table)
        self._bases = dict.fromkeys(limiters, 0)
        self._last = dict.fromkeys(limiters, 0)

    async def run(self) -> None:
        """Sample until cancelled."""
        try:
            while True:
                self.sample()
                await trio.sleep(SAMPLE_S)
        finally:
            os.close(self._table)

    def sample(self) -> None:
        """Take one sample."""
        counted = ip_bytes(read_table(self._table))
        now_s = time.monotonic()
        values = {}
        for limiter, device in self._devices.items():
            last = self._last[limiter]
            value = counted.get((device, "rx"), last)
            if value < last:
                # Another interface of this name, which counts from 0.
                self._bases[limiter] += last
            self._last[limiter] = value
            values[limiter] = self._bases[limiter] + value
        self.series.add(now_s, values)
