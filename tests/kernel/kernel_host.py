"""A process with a kernel datapath in a network namespace, driven over a pipe (remote.py).

Usage: kernel_host.py <namespace> <descriptor>. The first message is the limiter's name and a way of
attaching (`WAYS`); then come (method, arguments), answered by ("done", result) or ("failed",
exception). While attached it ticks every 5 ms, as a daemon does, unless it is paused.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection

from drld.capture.attachment import attachment
from drld.capture.clsact import Clsact
from drld.capture.kernel import KernelDatapath
from drld.capture.tcx import Tcx
from drld.model import Enforcement, FlowId, Measurement
from drld.spec import LimitSpec
from testbed.netns import enter

TICK_S = 0.005
WAYS = {None: attachment, "tcx": Tcx, "clsact": Clsact}


class Host:
    """What can be called from the other end."""

    def __init__(self, limiter: str, way: str | None) -> None:
        self.datapath = KernelDatapath(limiter, attachment=WAYS[way])
        self.attached = False
        self.paused = False

    def attach(self, limits: list[tuple[LimitSpec, Enforcement]]) -> str:
        self.datapath.attach(limits, time.monotonic_ns())
        self.attached = True
        return self.datapath.reason

    def read(self, limit_id: int) -> Measurement:
        return self.datapath.read(limit_id, time.monotonic_ns())

    def program(self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId]) -> None:
        now_ns = time.monotonic_ns()
        self.datapath.program(limit_id, enforcement, evict, now_ns)
        self.datapath.flush(now_ns)

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        self.datapath.set_share(limit_id, share)

    def counters(self) -> dict[str, int]:
        return dict(self.datapath.counters())

    def detach(self) -> None:
        self.attached = False
        self.datapath.detach()

    def pause(self, paused: bool) -> None:
        self.paused = paused


def serve(pipe: Connection) -> None:
    host = Host(*pipe.recv())
    while True:
        if host.attached and not host.paused:
            host.datapath.flush(time.monotonic_ns())
        if not pipe.poll(TICK_S):
            continue
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
