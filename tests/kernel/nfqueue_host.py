"""A process with an nfqueue datapath in a network namespace, driven over a pipe (conftest.py).

Usage: nfqueue_host.py <namespace> <descriptor>. The first message is the arguments of
`NfqueueDatapath` (limiter name, firewall, queue, timestamps, way of attaching); then come (method,
arguments), answered by ("done", result) or ("failed", exception). Methods of the datapath get the
current time where they take one.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from netfilterqueue import Packet

from drld.capture.attachment import attachment
from drld.capture.clsact import Clsact
from drld.capture.nfqueue import NfqueueDatapath
from drld.capture.tcx import Tcx
from drld.model import Enforcement, FlowKey, Measurement
from drld.spec import LimitSpec
from testbed.netns import enter

WAYS = {None: attachment, "tcx": Tcx, "clsact": Clsact}


class BreakableDatapath(NfqueueDatapath):
    """One that can be told to have a bug."""

    broken = False

    def _judge(self, packet: Packet) -> bool:
        if self.broken:
            raise ArithmeticError("judging is broken")
        return super()._judge(packet)


class Host:
    """What can be called from the other end."""

    def __init__(
        self,
        limiter: str,
        firewall: str,
        queue: int | None,
        timestamps: str = "auto",
        way: str | None = None,
    ) -> None:
        self.datapath = BreakableDatapath(
            limiter,
            firewall,
            queue,
            Random(1),
            self.clock,
            timestamps=timestamps,
            attachment=WAYS[way],
        )
        self.frozen_ns: int | None = None
        self.draining = True
        self.attached = False

    def clock(self) -> int:
        return time.monotonic_ns() if self.frozen_ns is None else self.frozen_ns

    def freeze(self, frozen: bool) -> None:
        self.frozen_ns = time.monotonic_ns() if frozen else None

    def attach(self, limits: list[tuple[LimitSpec, Enforcement]]) -> int:
        self.datapath.attach(limits, self.clock())
        self.attached = True
        return self.datapath.queue

    def read(self, limit_id: int) -> Measurement:
        return self.datapath.read(limit_id, self.clock())

    def program(self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowKey]) -> None:
        self.datapath.program(limit_id, enforcement, evict, self.clock())

    def flush(self) -> None:
        self.datapath.flush(self.clock())

    def reason(self) -> str:
        return self.datapath.reason

    def counters(self) -> dict[str, int]:
        return dict(self.datapath.counters())

    def detach(self) -> None:
        self.attached = False
        self.datapath.detach()

    def pause(self, paused: bool) -> None:
        self.draining = not paused

    def drain(self) -> int:
        return self.datapath.drain()

    def break_judging(self, broken: bool) -> None:
        self.datapath.broken = broken


def serve(pipe: Connection) -> None:
    host = Host(*pipe.recv())
    while True:
        waiting: list[Any] = [pipe]
        if host.attached and host.draining:
            waiting.append(host.datapath.fileno())
        ready, _, _ = select.select(waiting, [], [])
        if len(ready) > (pipe in ready):
            host.datapath.drain()
        if pipe in ready:
            try:
                method, arguments = pipe.recv()
            except EOFError:
                return
            call: Callable[..., object] = getattr(host, method)
            try:
                pipe.send(("done", call(*arguments)))
            except Exception as error:  # for the other end to raise
                pipe.send(("failed", error))


if __name__ == "__main__":
    enter(sys.argv[1])
    serve(Connection(int(sys.argv[2])))
