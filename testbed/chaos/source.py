"""The traffic of one source: TCP flows that are opened again when they stall, a constant stream of
UDP, and a canary. Each is a thread.

The canary is a slow stream of numbered packets under a limit of its own, far below its rate. No
limit drops one, so each packet missing at the sink was lost to a fault.

The standard input has a job, and then a line for each request: `{"flows": 3}` sets the number of
TCP flows, and `{"report": true}` returns the sending times of the canary's packets since the last
report. The end of the input ends the process.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from testbed import child
from testbed.traffic import CONGESTION_CONTROL

CANARY = struct.Struct("!HI")
"""Number of the source, number of the packet; small, as canaries pass besides the load."""

_UNSENT = 32 * 1024
_CHUNK = memoryview(bytes(_UNSENT))
_TCP_NOTSENT_LOWAT = 25
STALL_S = 0.7
"""A flow that could not send for this time is given up, as by a client, so that TCP's back-off does
not prolong an outage."""
_PAUSE_S = 0.004
"""Pause before the next connection, as some fail at once."""


class _Flow:
    """A TCP connection, and then the next one of its kind, until it is ended."""

    def __init__(self, to: tuple[str, int]) -> None:
        self.ended = threading.Event()
        threading.Thread(target=self._run, args=(to,), daemon=True).start()

    def _run(self, to: tuple[str, int]) -> None:
        while not self.ended.wait(_PAUSE_S):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
                algorithm = CONGESTION_CONTROL.encode()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm)
                connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT)
                # It ends with a reset, and leaves no packets behind.
                lingering = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingering)
                connection.settimeout(STALL_S)
                with suppress(OSError):
                    connection.connect(to)
                    while not self.ended.is_set():
                        connection.send(_CHUNK)


def _pace(
    to: tuple[str, int],
    per_s: float,
    payload: Callable[[int], bytes],
    due_s: float,
    sent: deque[float],
) -> None:
    """Start to send numbered packets at a constant rate at a time; append their sending times.

    Up to ten late packets are made up for; more are left out.
    """

    def run() -> None:
        next_s, number = due_s, 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect(to)
            sender.setblocking(False)
            while True:
                time.sleep(max(next_s - time.monotonic(), 0.0))
                now_s = time.monotonic()
                if now_s - next_s > 10 / per_s:
                    next_s = now_s
                next_s += 1 / per_s
                try:
                    sender.send(payload(number))
                except (BlockingIOError, ConnectionRefusedError):
                    continue
                except OSError as error:
                    child.send(error=f"a source cannot send: {error}")
                    return
                number += 1
                sent.append(now_s)

    threading.Thread(target=run, daemon=True).start()


def work() -> None:
    """Send until the standard input ends."""
    job = child.receive()
    # The threads inherit the priority, so it is raised before they start.
    priority = child.raise_priority()
    begin_s = time.monotonic() + job["offset_s"]
    stream, sent = bytes(job["stream_bytes"]), deque[float]()
    # JSON has lists for tuples.
    to, stream_to, canary_to = (tuple(job[key]) for key in ("flows_to", "stream_to", "canary_to"))
    _pace(stream_to, job["stream_per_s"], lambda _: stream, begin_s, deque(maxlen=0))
    _pace(canary_to, job["canary_per_s"], lambda number: CANARY.pack(job["number"], number),
          begin_s, sent)  # fmt: skip
    flows: list[_Flow] = []

    def keep(count: int) -> None:
        while len(flows) > count:
            flows.pop().ended.set()
        while len(flows) < count:
            flows.append(_Flow(to))

    keep(job["flows"])
    child.send(ready=True, priority=priority)
    for wish in map(json.loads, sys.stdin):
        if "flows" in wish:
            keep(wish["flows"])
        else:
            child.send(sent=[sent.popleft() for _ in range(len(sent))])


if __name__ == "__main__":
    child.main(work)
