"""Traffic of the benchmarks: senders and counters, used for a slice at a time."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import trio

from testbed import netns
from testbed.bench.lanes import SINK, SOURCE, Field, Lane, Sample, Setting
from testbed.cpu import CpuTimes
from testbed.crew import Child

_SOURCES = Path(__file__).parent
_DEVICES = Path("/proc/thread-self/net/dev")
_PATIENCE_S = 30.0
_MARGIN_S = 0.2
"""Time for which a sender goes on after the measurement."""
_LEAST_CORES = 0.01
"""Resolution of /proc/stat."""
SMALLEST_FRAME, LARGE_FRAME = 60, 1442
"""Bytes without the checksum: a "64-byte frame", and 1,400 bytes in UDP."""


def pinned(cpu: int) -> list[str]:
    """The beginning of a command that stays on a processor."""
    return ["taskset", "--cpu-list", str(cpu)]


def tool(setting: Setting, name: str, *libraries: str) -> Path:
    """A program in C, compiled if necessary.

    Raises:
        HostError: it does not compile.
    """
    program = setting.state / name
    if not program.exists():
        source = _SOURCES / f"{name}.c"
        netns.run(
            ["gcc", "-O2", "-o", str(program), str(source), *(f"-l{each}" for each in libraries)]
        )
    return program


class Tcp:
    """Some connections through each lane, all to one sink."""

    def __init__(self, sender: Child, seconds: float, warmup_s: float) -> None:
        self._sender = sender
        self._seconds = seconds
        self._warmup_s = warmup_s

    @classmethod
    async def start(
        cls,
        field: Field,
        flows: int,
        seconds: float,
        warmup_s: float = 0.2,
        buffer: int | None = None,
    ) -> Tcp:
        """Start sender and sink; `buffer`: most unsent bytes of a flow."""
        sink = await start_pinned(field, SINK, "bench.stream", {}, "take")
        await sink.receive(_PATIENCE_S)
        job = {"flows": flows, "buffer": buffer}
        sender = await start_pinned(field, SOURCE, "bench.stream", job, "send")
        await sender.receive(_PATIENCE_S)
        return cls(sender, seconds, warmup_s)

    async def measure(self, lane: Lane) -> Sample:
        """Goodput of a slice (`bps`), and processor time of the whole host (`cpu_s_per_gb`)."""
        return await self.through([lane])

    async def through(self, lanes: Sequence[Lane]) -> Sample:
        """Do as `measure`, with the connections spread over lanes."""
        found = await self._ask(lanes, drain=True)
        return {quantity: found[quantity] for quantity in ("bps", "cpu_s_per_gb")}

    async def each(self, lanes: Sequence[Lane]) -> list[float]:
        """Goodput of each lane, bits/s; bytes under way at the end do not count."""
        found: dict[str, float] = (await self._ask(lanes, drain=False))["each"]
        return [found[lane.sink.address] for lane in lanes]

    async def _ask(self, lanes: Sequence[Lane], *, drain: bool) -> dict[str, Any]:
        await self._sender.send(
            {
                "destinations": [lane.sink.address for lane in lanes],
                "seconds": self._seconds,
                "warmup": self._warmup_s,
                "drain": drain,
            }
        )
        return await self._sender.receive(self._seconds + self._warmup_s + _PATIENCE_S)


async def start_pinned(field: Field, role: str, module: str, job: object, argument: str) -> Child:
    """Start one of the testbed's programs in the source or sink, on its processor."""
    cpu = field.setting.cpus[role == SINK]
    command = [*pinned(cpu), sys.executable, "-m", f"testbed.{module}", argument]
    started = field.members.start(f"{module} {argument}", netns.namespace(role), command)
    await started.send(job)
    return started


@dataclass(frozen=True, slots=True)
class Blast:
    """UDP packets through a lane, to addresses without a host."""

    field: Field
    frame_bytes: int
    seconds: float
    rate: int = 0
    """Packets/s; 0: as many as one processor sends."""
    addresses: int = 1
    """Number of destinations, which take turns."""
    flows: int = 0
    """Flows to each destination; 0: 64 ports take turns independently of the destinations."""
    cpus: tuple[int, ...] = ()
    """Processors with a sender each; empty: the senders' processor."""
    apart: bool = False
    """Whether each sender has addresses of its own."""
    warmup_s: float = 0.3

    async def measure(self, lane: Lane) -> Sample:
        """Packets that arrived (`pps`), and those per busy processor (`pps_per_core`)."""
        setting, source = self.field.setting, lane.source
        command = [
            *(str(tool(setting, "blast")), source.device, source.mac, lane.entry.mac),
            source.address,
        ]
        duration = str(self.warmup_s + self.seconds + _MARGIN_S)
        first = IPv4Address(lane.nowhere)
        senders: list[Child] = []
        try:
            for number, cpu in enumerate(self.cpus or setting.cpus[:1]):
                own = first + number * self.addresses if self.apart else first
                line = [*pinned(cpu), *command, str(own), str(self.addresses)]
                line += [str(self.frame_bytes), duration, str(self.rate), str(self.flows)]
                senders.append(self.field.members.start("blast", netns.namespace(SOURCE), line))
            for sender in senders:
                await sender.receive(_PATIENCE_S)
            await trio.sleep(self.warmup_s)
            cpu_before, began, before = CpuTimes.now(), time.monotonic(), _arrived(lane)
            await trio.sleep(self.seconds)
            busy, ended, after = cpu_before.until(CpuTimes.now()), time.monotonic(), _arrived(lane)
            for sender in senders:
                await sender.receive(_PATIENCE_S)
        finally:
            await self.field.members.dismiss(senders)
        pps = (after - before) / (ended - began)
        cores = busy["busy"] * (os.cpu_count() or 1)
        return {"pps": pps, "pps_per_core": pps / max(cores, _LEAST_CORES)}


def _arrived(lane: Lane) -> int:
    """Total packets that the sink received through a lane."""
    table = netns.within(netns.namespace(SINK), _DEVICES.read_text)
    line = next(
        line for line in table.splitlines() if line.strip().startswith(lane.sink.device + ":")
    )
    return int(line.partition(":")[2].split()[1])
