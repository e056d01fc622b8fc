"""A BPF program at the exit of a lane, held by a process of the testbed.

It is drld's own program, through the datapath's class but without a daemon's ticks, so that the
enforcement is known and constant. Or it is an empty program, for comparison.
"""

from __future__ import annotations

import itertools
import select
import struct
import sys
import time
from pathlib import Path
from typing import Any

from drld import config
from drld.capture.kernel.datapath import KernelDatapath
from drld.ebpf.attachment import attachment
from drld.ebpf.bpf import Code, Program
from drld.ebpf.hook import device
from drld.model import Enforcement
from drld.police.direction import Direction
from testbed import child

_BEAT_S = 1.0
_EMPTY = Code(struct.pack("<BBhiBBhi", 0xB7, 0, 0, -1, 0x95, 0, 0, 0), {})
"""r0 = -1, exit: the kernel asks the next program (TCX_NEXT, TC_ACT_UNSPEC)."""


def _attach_drld(job: dict[str, Any]) -> KernelDatapath:
    """drld's program, with the limits of a configuration, and records for them in turn."""
    spec = config.load(Path(job["config"]))
    datapath = KernelDatapath(spec.name)
    records = itertools.cycle(Enforcement(**record) for record in job["records"])
    datapath.attach(list(zip(spec.limits, records, strict=False)), time.monotonic_ns())
    return datapath


def _attach_empty(job: dict[str, Any]) -> None:
    place = attachment("bench")
    program = Program.load(place.program_name("empty"), _EMPTY, {})
    place.put(device(job["device"]).index, Direction.OUT, program, "empty")


def work() -> None:
    """Attach the job's program, and stay."""
    job = child.receive()
    datapath = None
    if "config" in job:
        datapath = _attach_drld(job)
    else:
        _attach_empty(job)
    child.send(ready=True)
    while not select.select([sys.stdin], [], [], _BEAT_S)[0]:
        if datapath is not None:
            datapath.flush(time.monotonic_ns())


if __name__ == "__main__":
    child.main(work)
