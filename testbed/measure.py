"""The sampler: bytes on interfaces, counted by the kernel, read on an even grid.

One process reads the counters of interfaces in many namespaces: an open descriptor of a namespace's
`net/dev` can be read from anywhere. The counters are independent of the daemons.

Bytes are of the IP layer: the interfaces count 14 bytes of Ethernet header for each packet,
which are taken off.
"""

from __future__ import annotations

import os
import time
from typing import Any

from testbed import ETHERNET_HEADER, child, netns
from testbed.errors import HostError

FIRST_SAMPLE = -1
"""The first sample is one before the start, so that a value at the start can be interpolated."""

_BUFFER = 1 << 16
_COLUMNS = {"rx": (0, 1), "tx": (8, 9)}
"""Columns of bytes and packets in `net/dev`, after the interface's name."""


def ip_bytes(table: str) -> dict[tuple[str, str], int]:
    """IP-layer bytes by interface and direction (`rx`, `tx`), from the text of `net/dev`."""
    found = {}
    for line in table.splitlines()[2:]:
        device, _, numbers = line.partition(":")
        columns = numbers.split()
        for direction, (size, packets) in _COLUMNS.items():
            total = int(columns[size]) - ETHERNET_HEADER * int(columns[packets])
            found[device.strip(), direction] = total
    return found


def open_table() -> int:
    """A descriptor of `net/dev` in this thread's namespace."""
    return os.open("/proc/thread-self/net/dev", os.O_RDONLY | os.O_CLOEXEC)


def read_table(table: int) -> str:
    """The whole text; the kernel returns it a page at a time."""
    read = bytearray()
    while part := os.pread(table, _BUFFER, len(read)):
        read += part
    return read.decode("ascii")


def work() -> None:
    """Sample the job's counters every `interval_ns` until the end of the run."""
    job = child.receive()
    counters: list[dict[str, Any]] = job["counters"]
    interval_ns: int = job["interval_ns"]
    last: int = job["duration_ns"] // interval_ns
    tables = {
        name: netns.within(name, open_table)
        for name in {counter["namespace"] for counter in counters}
    }
    child.send(ready=True, priority=child.raise_priority())
    begin_ns: int = child.receive()["start_ns"]
    times: list[int] = []
    values: list[list[int]] = [[] for _ in counters]
    for index in range(FIRST_SAMPLE, last + 1):
        wait_ns = begin_ns + index * interval_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        times.append(time.monotonic_ns() - begin_ns)
        read = {name: ip_bytes(read_table(table)) for name, table in tables.items()}
        for series, counter in zip(values, counters, strict=True):
            try:
                series.append(read[counter["namespace"]][counter["device"], counter["direction"]])
            except KeyError:
                raise HostError(
                    f"no interface {counter['device']} in {counter['namespace']}"
                ) from None
    child.send(
        result={
            "times_ns": times,
            "values": {
                counter["key"]: series for counter, series in zip(counters, values, strict=True)
            },
        }
    )


def worst_lateness(times_ns: list[int], interval_ns: int) -> int:
    """The worst lateness of a sample, ns."""
    return max(
        time_ns - index * interval_ns for index, time_ns in enumerate(times_ns, FIRST_SAMPLE)
    )


def lateness_problem(worst_ns: int, interval_ns: int) -> str | None:
    """The reason why a run with a sample this late does not count, or None."""
    if worst_ns <= interval_ns // 2:
        return None
    return (
        f"the sampler could not keep up: a sample came {worst_ns / 1e6:.1f} ms late "
        f"(at most {interval_ns / 2e6:.0f} ms)"
    )


if __name__ == "__main__":
    child.main(work)
