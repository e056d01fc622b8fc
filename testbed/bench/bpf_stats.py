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
from testbed.bench.lanes import Lane, Sample
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


class Exit:
    """The program at the exit of a lane, found by its process and its hook."""

    def __init__(self, lane: Lane, pid: int) -> None:
        """The process has a descriptor of the program."""
        show = ["tc", "-json", "-netns", lane.namespace, "filter", "show", "dev", lane.exit]
        filters = json.loads(netns.run([*show, "egress"]))
        found = [each["options"]["prog"]["id"] for each in filters if "options" in each]
        found += netns.within(lane.namespace, partial(_on_tcx, lane.exit))
        if len(found) != 1:
            raise MeasurementError(f"{lane.exit}: {len(found)} BPF programs")
        for file in Path(f"/proc/{pid}/fdinfo").iterdir():
            # Descriptors may be opened and closed meanwhile.
            if file.exists() and re.search(rf"^prog_id:\t{found[0]}$", file.read_text(), re.M):
                self._file = file
                return
        raise MeasurementError(f"process {pid} has no BPF program {found[0]}")

    def read(self) -> tuple[int, int]:
        """Total nanoseconds and runs."""
        fields = dict(
            line.split(":\t", 1) for line in self._file.read_text(encoding="ascii").splitlines()
        )
        return int(fields["run_time_ns"]), int(fields["run_cnt"])


def _on_tcx(interface: str) -> list[int]:
    try:
        return bpf.attached(socket.if_nametoindex(interface), bpf.TCX_EGRESS)
    except OSError:  # a kernel without it
        return []


def timed(
    exits: dict[int, Exit], traffic: Callable[[Lane], Awaitable[Sample]]
) -> Callable[[Lane], Awaitable[Sample]]:
    """A slice of traffic, with nanoseconds a run of the program (`ns`); exits by lane number."""

    async def measure(lane: Lane) -> Sample:
        before_ns, before = exits[lane.number].read()
        sample = await traffic(lane)
        after_ns, after = exits[lane.number].read()
        if after == before:
            raise MeasurementError(f"{lane.exit}: the program did not run")
        return {**sample, "ns": (after_ns - before_ns) / (after - before)}

    return measure
