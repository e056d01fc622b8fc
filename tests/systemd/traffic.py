"""UDP through an interface, faster than its limit, and a count of the packets that leave.

`python -m tests.systemd.traffic DEVICE ADDRESS` sends until its standard input ends, and then
writes its samples.
"""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

PACKET = 1028
"""Size of an IP packet, bytes."""
SENT_BPS = 40e6
_STEP_S = 0.005
_PORT = 9
_DEADLINE_S = 60


@dataclass
class Seen:
    """The packets that left the interface."""

    samples: list[tuple[float, int, float, int]] = field(default_factory=list)
    """The samples: time before a count, s; packets since the start; time after it, s; packets that
    were sent until then."""

    def rate_bps(self) -> float:
        """Bits per second, over the whole time."""
        (start, first, *_), (_, last, end, _) = self.samples[0], self.samples[-1]
        return (last - first) * PACKET * 8 / (end - start)

    def part(self, rate_bps: float, depth: float) -> float:
        """Packets that left, divided by those that a bucket of this rate and depth would pass.

        A host without processor time keeps the sender from sending: that is no fault of a limiter.
        """
        tokens, passed = depth, 0.0
        for (earlier, *_, before), (now, *_, sent) in pairwise(self.samples):
            tokens = min(tokens + (now - earlier) * rate_bps / 8, depth)
            size = min((sent - before) * PACKET, tokens)
            tokens -= size
            passed += size
        return (self.samples[-1][1] - self.samples[0][1]) * PACKET / passed

    def burst(self, rate_bps: float) -> float:
        """Depth of the smallest bucket of this rate that passes the traffic, or less."""
        lowest, burst = float("inf"), 0.0
        for before, packets, after, _ in self.samples:
            lowest = min(lowest, packets * PACKET - before * rate_bps / 8)
            burst = max(burst, packets * PACKET - after * rate_bps / 8 - lowest)
        return burst

    def pause_s(self) -> float:
        """The longest time without a packet, s."""
        pause, last, since = 0.0, -1, 0.0
        for before, packets, after, _ in self.samples:
            if packets == last:
                pause = max(pause, before - since)
            else:
                last, since = packets, after
        return pause


@contextmanager
def traffic(device: str, address: str) -> Iterator[Seen]:
    """Send while the context lasts; the result is complete after it."""
    seen = Seen()
    with subprocess.Popen(
        [sys.executable, "-m", __name__, device, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield seen
        finally:
            output, _ = process.communicate(timeout=_DEADLINE_S)
    seen.samples = [tuple(sample) for sample in json.loads(output)]


def _main(device: str, address: str) -> None:
    counter = Path(f"/sys/class/net/{device}/statistics/tx_packets")
    payload = bytes(PACKET - 28)
    samples = []
    started, sent, offered = time.monotonic(), 0, 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        while not select.select([sys.stdin], [], [], _STEP_S)[0]:
            now = time.monotonic()
            due = int((now - started) * SENT_BPS / 8 / PACKET)
            # If this process did not run for a while, it does not send all that is due.
            size = min(due - sent, 200)
            for _ in range(size):
                sock.sendto(payload, (address, _PORT))
            sent = due
            offered += size
            before = time.monotonic()
            packets = int(counter.read_text())
            samples.append((before, packets, time.monotonic(), offered))
    json.dump(samples, sys.stdout)


if __name__ == "__main__":
    _main(*sys.argv[1:])
