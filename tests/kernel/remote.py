"""A datapath in a process of its own inside the limiter's namespace, seen from the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from drld.model import Enforcement, FlowId, Measurement
from drld.spec import LimitSpec

from . import datapath_host, kernel_host, nfqueue_host
from .preloaded import PROCESSES
from .topology import DEADLINE_S, wait_for


class RemoteDatapath:
    """The common methods of both datapaths."""

    def __init__(
        self,
        make: Callable[[], datapath_host.Host],
        namespace: str,
        environment: Mapping[str, str],
    ) -> None:
        self._pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(
            target=datapath_host.serve,
            args=(make, namespace, dict(environment), theirs),
            daemon=True,
        )
        with theirs:
            self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid
        self.totals: dict[int, Measurement] = {}

    def _call(self, method: str, *arguments: object) -> Any:
        self._pipe.send((method, arguments))
        assert self._pipe.poll(DEADLINE_S), f"{method} takes too long"
        outcome, value = self._pipe.recv()
        if outcome == "failed":
            raise value
        return value

    def attach(self, *limits: tuple[LimitSpec, Enforcement]) -> None:
        self._call("attach", list(limits))

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId] = ()
    ) -> None:
        self._call("program", limit_id, enforcement, list(evict))

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        self._call("set_share", limit_id, share)

    def flush(self) -> None:
        """End a tick."""
        self._call("flush")

    def reason(self) -> str:
        """The datapath's reason, for operators."""
        said: str = self._call("reason")
        return said

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self._call("counters")
        return counters

    def detach(self) -> None:
        self._call("detach")

    def pause(self, paused: bool = True) -> None:
        """Do nothing unasked, or go on."""
        self._call("pause", paused)

    def total(self, limit_id: int) -> Measurement:
        """The counts of a limit since attach; flows are those of the last read."""
        new: Measurement = self._call("read", limit_id)
        old = self.totals.get(limit_id, Measurement(0))
        flows = {**old.hits, **new.hits}
        hits = {flow: old.hits.get(flow, 0) + new.hits.get(flow, 0) for flow in flows}
        self.totals[limit_id] = replace(old.plus(new), flows=new.flows, hits=hits)
        return self.totals[limit_id]

    def wait(self, limit_id: int, packets: int) -> Measurement:
        """The total of a limit, once so many packets have arrived."""
        return wait_for(lambda: self.total(limit_id), lambda total: total.arrived_items >= packets)

    def kill(self) -> None:
        """End the process at once, as the kernel's OOM killer would."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


class RemoteNfqueueDatapath(RemoteDatapath):
    """An `NfqueueDatapath`."""

    def __init__(
        self,
        namespace: str,
        limiter: str,
        firewall: str,
        queue: int | None,
        *,
        timestamps: str = "auto",
        environment: Mapping[str, str] | None = None,
        way: str | None = None,
    ) -> None:
        arguments = (limiter, firewall, queue, timestamps, way)
        super().__init__(partial(nfqueue_host.Host, *arguments), namespace, environment or {})

    def queue(self) -> int:
        """The queue's number."""
        queue: int = self._call("queue")
        return queue

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


class RemoteKernelDatapath(RemoteDatapath):
    """A `KernelDatapath`."""

    def __init__(self, namespace: str, limiter: str, way: str | None = None) -> None:
        super().__init__(partial(kernel_host.Host, limiter, way), namespace, {})

    def prepare(self, *limits: LimitSpec) -> None:
        """Make the programs for these, in another thread."""
        self._call("prepare", limits)

    def refuse(self, interface: str) -> None:
        """Have the kernel refuse programs for this interface from now on."""
        self._call("refuse", interface)

    def lose(self, interface: str) -> None:
        """Remove this interface as soon as a program is to be attached to it."""
        self._call("lose", interface)
