"""Adds and removes limits under traffic: no packet is lost, and the daemon does not grow.

    sudo .venv/bin/python -m tests.kernel.many_changes [--datapath nfqueue] [COUNT]

It takes minutes with 1,000 limits, the default. So it is no test of the suite: `test_limits_kernel`
changes a few. The changes are those of drlctl, without its start. The daemon's memory is read each
tenth of the way; the first tenth warms it up.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from .daemon_host import DaemonHost
from .test_limits_kernel import WIDE, traffic
from .topology import Topology, remove_stale

MOST_GROWTH_KB = 2048
"""The history of changes grows to 512 kB of text, and an interpreter's memory varies by itself.
If each of 1,000 limits left 2 kB behind, the growth would be larger."""
STEPS = 10
PAUSE_S = 0.002
"""The pause between two packets, s: without one, the daemon waits for the processor."""


def main() -> int:
    """Change limits; 0: nothing was lost, and nothing grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--datapath", choices=("kernel", "nfqueue"), default="kernel")
    options = parser.parse_args()
    remove_stale()
    topology = Topology()
    with tempfile.TemporaryDirectory() as directory:
        daemon = DaemonHost(topology.names["limiter"], Path(directory), "lim1", options.datapath)
        try:
            topology.build()
            daemon.configure({"customer-a": WIDE})
            # A process of its own: a forked one shares its memory with others.
            daemon.spawn("-m", "drld")
            assert daemon.wait_for_state("READY=1"), daemon.log
            return changed(topology, daemon, options.count)
        finally:
            daemon.close()
            topology.remove()


def changed(topology: Topology, daemon: DaemonHost, count: int) -> int:
    """Add and remove so many limits, one after the other."""
    seen = []
    began = time.monotonic()
    with traffic(topology, PAUSE_S) as packets:
        for number in range(count):
            if number * STEPS % count < STEPS:
                seen.append(held(daemon))
                memory_kb, files = seen[-1]
                print(
                    f"{number} limits, {memory_kb} kB, {files} files, {packets.sent} packets",
                    flush=True,
                )
            name = f"added-{number}"
            added = {"name": name, "rate": "1gbit", "match": {"out": "out0"}}
            daemon.post("/v1/limits", {"limits": [added]})
            daemon.post(f"/v1/limits/{name}/remove", {})
        seen.append(held(daemon))
    lost = packets.sent - packets.came - packets.host_drops
    warm, last = seen[1], seen[-1]
    growth_kb = last[0] - warm[0]
    seconds = time.monotonic() - began
    print(f"{count} limits added and removed in {seconds:.0f} s: {packets.sent} packets sent,")
    print(f"{packets.came} came, {packets.host_drops} dropped by a full queue of the host;")
    print(f"after the first tenth: {growth_kb:+} kB, {last[1] - warm[1]:+} files")
    mistakes = []
    if lost:
        mistakes.append(f"{lost} packets were lost")
    if growth_kb > MOST_GROWTH_KB:
        mistakes.append(f"the daemon grew by {growth_kb} kB")
    if last[1] > warm[1]:
        mistakes.append("files stayed open")
    if "Traceback" in daemon.log:
        mistakes.append(daemon.log)
    for mistake in mistakes:
        print(f"many_changes: {mistake}", file=sys.stderr)
    return 1 if mistakes else 0


def held(daemon: DaemonHost) -> tuple[int, int]:
    """The daemon's resident memory, kB, and its open files."""
    process = Path("/proc", str(daemon.get("/v1/status")["pid"]))
    found = re.search(r"^VmRSS:\s+(\d+) kB", (process / "status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]), len([*(process / "fd").iterdir()])


if __name__ == "__main__":
    sys.exit(main())
