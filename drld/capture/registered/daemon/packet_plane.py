"""The choice of the datapath of a daemon, and the task that reads its queue.

`datapath = "auto"` prefers the kernel datapath, and takes nfqueue where the host refuses that. A
daemon without limits on packets may go on without any datapath. It gets one with its first limit
on packets. The choice then lasts until the daemon ends.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random, SystemRandom

import trio

from drld.capture.kernel.datapath import KernelDatapath, limiter_programs
from drld.capture.nfqueue.datapath import NfqueueDatapath
from drld.capture.nfqueue.firewall import remove_rules
from drld.capture.spec import Match, PacketsSpec
from drld.control.schema.status import DatapathReport
from drld.daemon.running_plane import PlaneContext, RunningPlane
from drld.doctor.facts.host import CAP_NET_ADMIN, capabilities
from drld.errors import DatapathError, DrldError
from drld.log_event import event
from drld.police.no_datapath import NoDatapath
from drld.spec import LimiterSpec, LimitSpec

log = logging.getLogger("drld")


class PacketPlane(RunningPlane):
    """The limits on packets of one daemon."""

    datapath: KernelDatapath | NfqueueDatapath | NoDatapath

    def __init__(self, context: PlaneContext, spec: LimiterSpec) -> None:
        """Choose the preferred datapath; the host stays as it is until `put`."""
        self._clock = context.clock
        super().__init__(Match, self._preferred(spec))
        self._started = False
        self._refusal = ""
        """The reason why there is no kernel datapath, if nfqueue takes its place."""
        self._has_queue = trio.Event()

    async def prepare(self, spec: LimiterSpec) -> None:
        """See `RunningPlane.prepare`: compile and load the programs of the kernel datapath."""
        limits = _on_packets(spec)
        if isinstance(self.datapath, KernelDatapath):
            await trio.to_thread.run_sync(self.datapath.preparation(limits))
        elif isinstance(self.datapath, NoDatapath) and limits:
            # This fills the cache only. `put` reports an error of the compiler.
            with suppress(DatapathError):
                await trio.to_thread.run_sync(limiter_programs)

    def put(self, spec: LimiterSpec, attach: Callable[[], None]) -> None:
        """See `RunningPlane.put`."""
        if not self._started:
            self._start(spec, attach)
            self._started = True
        elif isinstance(self.datapath, NoDatapath) and _on_packets(spec):
            self._take_first_limits(self.datapath, spec, attach)
        else:
            attach()
        if isinstance(self.datapath, NfqueueDatapath):
            self._has_queue.set()

    async def run(self) -> None:
        """Read the queue of packets, from the time at which nfqueue is the datapath."""
        await self._has_queue.wait()
        assert isinstance(self.datapath, NfqueueDatapath)
        datapath = self.datapath
        while True:
            await trio.lowlevel.wait_readable(datapath.fileno())
            datapath.drain()

    def datapath_report(self) -> DatapathReport:
        """See `RunningPlane.datapath_report`."""
        return DatapathReport(
            name=self.datapath.name,
            reason=self.datapath.reason + self._refusal,
            firewall=self.datapath.firewall,
            queue=self.datapath.queue,
            counters={**self.datapath.counters()},
        )

    def _start(self, spec: LimiterSpec, attach: Callable[[], None]) -> None:
        """Attach for the first time, without a datapath if none is needed or possible.

        Raises:
            DatapathError: the host refuses every datapath, and this daemon needs one.
        """
        automatic = spec.plane(PacketsSpec).datapath == "auto"
        if automatic and not _on_packets(spec) and any(it.serves for it in spec.planes):
            reason = "no datapath, as no limit is on packets"
            self._attach_none(reason, attach)
            return
        try:
            self._attach_any(spec, attach)
        except DatapathError as error:
            # The limits of a registry may come at any time.
            if spec.limits or spec.registry is not None:
                raise
            none = event("datapath.none", reason=str(error))
            log.warning("no limits, and no datapath: %s", error, extra=none)
            self._attach_none(str(error), attach)

    def _take_first_limits(
        self, none: NoDatapath, spec: LimiterSpec, attach: Callable[[], None]
    ) -> None:
        """Attach the first limits on packets of a daemon that has had no datapath until now.

        Raises:
            ConfigError, DatapathError: `attach` fails; there is no datapath, as before.
        """

        def attach_or_detach() -> None:
            try:
                attach()
            except DrldError:
                self.datapath.detach()
                raise

        try:
            self._attach_any(spec, attach_or_detach)
        except DrldError:
            self.datapath = none
            raise
        report = self.datapath_report()
        log.info(
            "a datapath for the first limits on packets: %s",
            report["reason"],
            extra=event("datapath.chosen", datapath=report["name"], reason=report["reason"]),
        )

    def _attach_any(self, spec: LimiterSpec, attach: Callable[[], None]) -> None:
        """Attach on the configured datapath; with `auto`, on nfqueue if the kernel's is refused.

        Raises:
            DatapathError: the host refuses; nothing is left behind.
        """
        self.datapath = self._preferred(spec)
        try:
            attach()
        except DatapathError as error:
            if _is_powerless():
                raise DatapathError(
                    "limits on packets need root, or the capabilities in drld.service: "
                    "this process lacks CAP_NET_ADMIN",
                    error.limits,
                ) from error
            if spec.plane(PacketsSpec).datapath != "auto":
                raise
            self.datapath = self._nfqueue(spec)
            try:
                attach()
            except DatapathError as other:
                reason = f"{other}; no kernel datapath: {error}"
                raise DatapathError(reason, other.limits) from error
            fallback = event("datapath.fallback", old="kernel", new="nfqueue", reason=str(error))
            log.warning("no kernel datapath, nfqueue instead: %s", error, extra=fallback)
            self._refusal = f"; no kernel datapath: {error}"
        if isinstance(self.datapath, KernelDatapath) and spec.plane(PacketsSpec).firewall != "none":
            # A killed daemon on nfqueue leaves rules, which lead packets to an unread queue.
            remove_rules(spec.name)

    def _attach_none(self, reason: str, attach: Callable[[], None]) -> None:
        self.datapath = NoDatapath(reason)
        attach()

    def _preferred(self, spec: LimiterSpec) -> KernelDatapath | NfqueueDatapath:
        """Return the datapath that the daemon tries first."""
        if spec.plane(PacketsSpec).datapath == "nfqueue":
            return self._nfqueue(spec)
        return KernelDatapath(spec.name)

    def _nfqueue(self, spec: LimiterSpec) -> NfqueueDatapath:
        packets = spec.plane(PacketsSpec)
        return NfqueueDatapath(
            limiter_name=spec.name,
            firewall=packets.firewall,
            queue=packets.queue,
            rng=Random(SystemRandom().getrandbits(64)),
            clock=self._clock,
            timestamps=packets.timestamps,
            wall=time.time_ns,
        )


def _is_powerless() -> bool:
    """Return whether this process lacks the capability without which the host refuses any
    datapath."""
    held = capabilities(os.getpid())
    return held is not None and not held >> CAP_NET_ADMIN & 1


def _on_packets(spec: LimiterSpec) -> list[LimitSpec]:
    return [limit for limit in spec.limits if isinstance(limit.match, Match)]
