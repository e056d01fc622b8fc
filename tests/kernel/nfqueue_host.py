"""A process with an nfqueue datapath. While attached it drains its queue unless paused."""

from __future__ import annotations

import time
from random import Random

from netfilterqueue import Packet

from drld.capture.nfqueue.datapath import NfqueueDatapath
from tests.kernel import datapath_host
from tests.kernel.datapath_host import WAYS


class BreakableDatapath(NfqueueDatapath):
    """One that can be told to have a bug."""

    broken = False

    def _judge(self, packet: Packet) -> int:
        if self.broken:
            raise ArithmeticError("judging is broken")
        return super()._judge(packet)


class Host(datapath_host.Host):
    """See `datapath_host.Host`."""

    datapath: BreakableDatapath
    frozen_ns: int | None = None

    def __init__(
        self, limiter: str, firewall: str, queue: int | None, timestamps: str, way: str | None
    ) -> None:
        super().__init__(
            BreakableDatapath(
                limiter,
                firewall,
                queue,
                Random(1),
                self.clock,
                wall=self.wall,
                timestamps=timestamps,
                attachment=WAYS[way],
            )
        )

    def clock(self) -> int:
        return super().clock() if self.frozen_ns is None else self.frozen_ns

    def wall(self) -> int:
        """The time of day. It stands still with the other clock, or it would seem to be set."""
        return time.time_ns() - (super().clock() - self.clock())

    def freeze(self, frozen: bool) -> None:
        self.frozen_ns = super().clock() if frozen else None

    def waits_for(self) -> list[int]:
        return [self.datapath.fileno()]

    def turn(self) -> None:
        self.datapath.drain()

    def queue(self) -> int:
        return self.datapath.queue

    def drain(self) -> int:
        return self.datapath.drain()

    def break_judging(self, broken: bool) -> None:
        self.datapath.broken = broken
