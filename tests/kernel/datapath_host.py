"""A process with a datapath in a network namespace, driven over a pipe (remote.py).

Its `Host` is that of kernel_host.py or nfqueue_host.py. Over the pipe come (method, arguments),
answered by ("done", result) or ("failed", exception). Methods of the datapath get the current time
where they take one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait

from drld.capture.kernel.datapath import KernelDatapath
from drld.capture.nfqueue.datapath import NfqueueDatapath
from drld.ebpf.attachment import attachment
from drld.ebpf.clsact import Clsact
from drld.ebpf.tcx import Tcx
from drld.model import Enforcement, FlowId, Measurement
from drld.spec import LimitSpec
from testbed.netns import enter

WAYS = {None: attachment, "tcx": Tcx, "clsact": Clsact}


class Host:
    """The methods that the other end may call, and the work that goes on meanwhile."""

    turn_s: float | None = None
    """How often there is something to do, seconds; None: never unasked."""

    def __init__(self, datapath: KernelDatapath | NfqueueDatapath) -> None:
        self.datapath = datapath
        self.attached = False
        self.paused = False

    def clock(self) -> int:
        return time.monotonic_ns()

    def waits_for(self) -> list[int]:
        """Descriptors with work for `turn` as soon as they can be read."""
        return []

    def turn(self) -> None:
        """Do what there is to do."""

    def attach(self, limits: list[tuple[LimitSpec, Enforcement]]) -> None:
        self.datapath.attach(limits, self.clock())
        self.attached = True

    def read(self, limit_id: int) -> Measurement:
        return self.datapath.read(limit_id, self.clock())

    def program(self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId]) -> None:
        self.datapath.program(limit_id, enforcement, evict, self.clock())

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        self.datapath.set_share(limit_id, share)

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
        self.paused = paused


def serve(
    make: Callable[[], Host], namespace: str, environment: dict[str, str], pipe: Connection
) -> None:
    """Do in the namespace what comes over the pipe; `environment` are further variables."""
    os.environ.update(environment)
    enter(namespace)
    host = make()
    turned_s = time.monotonic()
    while True:
        busy = host.attached and not host.paused
        waiting = [pipe, *(host.waits_for() if busy else ())]
        patience_s = None
        if busy and host.turn_s is not None:
            patience_s = max(turned_s + host.turn_s - time.monotonic(), 0.0)
        ready = wait(waiting, patience_s)
        # A turn that is due is not put off by calls, however many come.
        if busy and (ready != [pipe] or patience_s == 0.0):
            host.turn()
            turned_s = time.monotonic()
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
