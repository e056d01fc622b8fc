"""An nfqueue datapath in a process of its own, seen from the test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from drld.model import Enforcement, FlowId, Measurement
from drld.spec import LimitSpec

from .topology import DEADLINE_S, wait_for

ROOT = Path(__file__).parents[2]


class RemoteDatapath:
    """An `NfqueueDatapath` in a process of its own inside the limiter's namespace."""

    def __init__(
        self,
        namespace: str,
        limiter: str,
        firewall: str,
        queue: int | None,
        path: Path | None = None,
        *,
        timestamps: str = "auto",
        environment: Mapping[str, str] | None = None,
        way: str | None = None,
    ) -> None:
        """`path` is a directory of tools that come before the system's."""
        self._start("nfqueue_host.py", namespace, path, environment)
        self._pipe.send((limiter, firewall, queue, timestamps, way))

    def _start(
        self,
        script: str,
        namespace: str,
        path: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        search = os.environ["PATH"]
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).with_name(script)),
                    namespace,
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "PATH": f"{path}:{search}" if path else search,
                    **(environment or {}),
                },
            )
        self._pipe = Connection(ours.detach())
        self.totals: dict[int, Measurement] = {}

    def _call(self, method: str, *arguments: object) -> Any:
        self._pipe.send((method, arguments))
        assert self._pipe.poll(DEADLINE_S), f"{method} takes too long"
        outcome, value = self._pipe.recv()
        if outcome == "failed":
            raise value
        return value

    def attach(self, *limits: tuple[LimitSpec, Enforcement]) -> int:
        """Attach, and return the queue's number."""
        queue: int = self._call("attach", list(limits))
        return queue

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId] = ()
    ) -> None:
        self._call("program", limit_id, enforcement, list(evict))

    def flush(self) -> None:
        """End a tick."""
        self._call("flush")

    def reason(self) -> str:
        """What it says of itself."""
        said: str = self._call("reason")
        return said

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self._call("counters")
        return counters

    def detach(self) -> None:
        self._call("detach")

    def pause(self, paused: bool = True) -> None:
        """Stop draining the queue, or go on."""
        self._call("pause", paused)

    def freeze(self, frozen: bool = True) -> None:
        """Stop the datapath's clock, or let it go on."""
        self._call("freeze", frozen)

    def drain(self) -> int:
        """Drain once."""
        packets: int = self._call("drain")
        return packets

    def break_judging(self, broken: bool = True) -> None:
        """Let every judgement raise, or not any more."""
        self._call("break_judging", broken)

    def total(self, limit_id: int) -> Measurement:
        """What was counted for a limit since attach; flows are those of the last read."""
        new: Measurement = self._call("read", limit_id)
        old = self.totals.get(limit_id, Measurement(0))
        self.totals[limit_id] = Measurement(
            interval_ns=old.interval_ns + new.interval_ns,
            arrived_bytes=old.arrived_bytes + new.arrived_bytes,
            arrived_packets=old.arrived_packets + new.arrived_packets,
            forwarded_bytes=old.forwarded_bytes + new.forwarded_bytes,
            forwarded_packets=old.forwarded_packets + new.forwarded_packets,
            dropped_bytes=old.dropped_bytes + new.dropped_bytes,
            dropped_packets=old.dropped_packets + new.dropped_packets,
            flows=new.flows,
        )
        return self.totals[limit_id]

    def wait(self, limit_id: int, packets: int) -> Measurement:
        """The total of a limit, once so many packets have arrived."""
        return wait_for(
            lambda: self.total(limit_id), lambda total: total.arrived_packets >= packets
        )

    def kill(self) -> None:
        """End the process at once, as the kernel's OOM killer would."""
        self.process.kill()
        self.process.wait()
        self._pipe.close()


class RemoteKernelDatapath(RemoteDatapath):
    """A `KernelDatapath` in a process of its own inside the limiter's namespace."""

    def __init__(self, namespace: str, limiter: str, way: str | None = None) -> None:
        self._start("kernel_host.py", namespace)
        self._pipe.send((limiter, way))

    def place(self, *limits: tuple[LimitSpec, Enforcement]) -> str:
        """Attach, and return what it says of itself."""
        reason: str = self._call("attach", list(limits))
        return reason

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        self._call("set_share", limit_id, share)
