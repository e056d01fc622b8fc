"""Nanoseconds and runs of the BPF program at a lane's exit, by the kernel's own statistics.

They are on while a descriptor is open. So a killed run leaves nothing behind, unlike with the
sysctl kernel.bpf_stats_enabled.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from drld.ebpf import bpf
from testbed import netns
from testbed.bench.lanes import Field, Lane, Sample
from testbed.errors import HostError, MeasurementError


@contextmanager
def statistics_on() -> Iterator[None]:
    """Make the kernel measure programs."""
    try:
        descriptor = bpf.enable_statistics()
    except OSError as error:
        raise HostError(f"statistics of BPF programs: {error}") from error
    try:
        yield
    finally:
        os.close(descriptor)


def timed(
    field: Field, traffic: Callable[[Lane], Awaitable[Sample]]
) -> Callable[[Lane], Awaitable[Sample]]:
    """A slice of traffic, with nanoseconds a run of the program at the lane's exit (`ns`).

    Each contestant of the field is a process that holds such a program.
    """
    exits = {
        lane.number: _information(lane, contestant.processes[0].pid)
        for lane, contestant in zip(field.lanes, field.contestants, strict=True)
    }

    async def measure(lane: Lane) -> Sample:
        before_ns, before = _read(exits[lane.number])
        sample = await traffic(lane)
        after_ns, after = _read(exits[lane.number])
        if after == before:
            raise MeasurementError(f"{lane.exit.device}: the program did not run")
        return {**sample, "ns": (after_ns - before_ns) / (after - before)}

    return measure


def _information(lane: Lane, pid: int) -> Path:
    """The kernel's file about the program at a lane's exit, through a descriptor of the process."""
    device = lane.exit.device
    show = ["tc", "-json", "-netns", lane.namespace, "filter", "show", "dev", device, "egress"]
    found = [each["options"]["prog"]["id"] for each in json.loads(netns.run(show))
             if "options" in each]  # fmt: skip
    found += netns.within(lane.namespace, partial(_on_tcx, device))
    if len(found) != 1:
        raise MeasurementError(f"{device}: {len(found)} BPF programs")
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        # Descriptors may be opened and closed meanwhile.
        if file.exists() and re.search(rf"^prog_id:\t{found[0]}$", file.read_text(), re.M):
            return file
    raise MeasurementError(f"process {pid} has no BPF program {found[0]}")


def _read(file: Path) -> tuple[int, int]:
    """Total nanoseconds and runs of a program."""
    fields = dict(line.split(":\t", 1) for line in file.read_text(encoding="ascii").splitlines())
    return int(fields["run_time_ns"]), int(fields["run_cnt"])


def _on_tcx(interface: str) -> list[int]:
    try:
        return bpf.attached(socket.if_nametoindex(interface), bpf.TCX_EGRESS)
    except OSError:  # a kernel without it
        return []
