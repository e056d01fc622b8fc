"""The traffic of one source: TCP flows that are opened again when they stall, a constant stream of
UDP, and a canary.

The canary is a slow stream of numbered packets under a limit of its own, far below its rate. No
limit drops one, so that each packet missing at the sink was lost to a fault.

The standard input has a job, and then a line for each request: `{"flows": 3}` sets the number of
TCP flows, and `{"report": true}` returns the sending times of the canary's packets since the last
report. The end of the input ends the process.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable

from testbed import child
from testbed.errors import HostError
from testbed.traffic import CONGESTION_CONTROL

CANARY = struct.Struct("!HI")
"""Number of the source, number of the packet; small, as canaries pass besides the load."""

_UNSENT = 32 * 1024
_CHUNK = memoryview(bytes(_UNSENT))
_TCP_NOTSENT_LOWAT = 25
STALL_S = 0.7
"""A flow that could not send for this time is given up, as by a client, so that TCP's back-off does
not prolong an outage."""
_PACE_S = 0.004


class _Flow:
    """A TCP connection, or the next one of its kind."""

    def __init__(self, to: tuple[str, int], selector: selectors.BaseSelector) -> None:
        self._to = to
        self._selector = selector
        self._socket: socket.socket | None = None
        self._active_s = 0.0

    def look(self, now_s: float) -> None:
        """Open the connection, and again if it has stalled."""
        if self._socket is not None and now_s - self._active_s > STALL_S:
            self.close()
        if self._socket is None:
            self._open(now_s)

    def _open(self, now_s: float) -> None:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL.encode()
        )
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT)
        # A given-up connection ends with a reset, and leaves no packets behind.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.connect_ex(self._to)
        self._socket = connection
        self._active_s = now_s
        self._selector.register(connection, selectors.EVENT_WRITE, self.push)

    def push(self) -> None:
        """Send what fits."""
        assert self._socket is not None
        try:
            self._socket.send(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        self._active_s = time.monotonic()

    def close(self) -> None:
        """End the connection at once."""
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None


class _Paced:
    """Packets at a constant rate; late packets are not made up for."""

    def __init__(
        self, to: tuple[str, int], per_s: float, payload: Callable[[int], bytes], begin_s: float
    ) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(to)
        self._socket.setblocking(False)
        self._period_s = 1 / per_s
        self._payload = payload
        self._due_s = begin_s
        self.number = 0

    def send(self, now_s: float) -> list[float]:
        """Send what is due; the times at which packets left."""
        sent = []
        if now_s - self._due_s > 10 * self._period_s:
            self._due_s = now_s
        while self._due_s <= now_s:
            self._due_s += self._period_s
            try:
                self._socket.send(self._payload(self.number))
            except OSError as error:
                if not isinstance(error, (BlockingIOError, ConnectionRefusedError)):
                    raise HostError(f"a source cannot send: {error}") from error
                continue
            self.number += 1
            sent.append(now_s)
        return sent


def work() -> None:
    """Send until the standard input ends."""
    job = child.receive()
    begin_s = time.monotonic() + job["offset_s"]
    stream = bytes(job["stream"]["bytes"])
    streams = _Paced(
        (job["load"], job["stream"]["port"]), job["stream"]["per_s"], lambda _: stream, begin_s
    )
    canary = _Paced(
        (job["watched"], job["canary"]["port"]),
        job["canary"]["per_s"],
        lambda number: CANARY.pack(job["number"], number),
        begin_s,
    )
    sent: list[float] = []
    os.set_blocking(sys.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        flows = [_Flow((job["load"], job["port"]), selector) for _ in range(job["flows"])]
        wishes = b""
        selector.register(sys.stdin, selectors.EVENT_READ)
        child.send(ready=True, priority=child.raise_priority())
        while True:
            for key, _ in selector.select(_PACE_S):
                if isinstance(key.fileobj, socket.socket):
                    key.data()
                    continue
                if not (read := os.read(sys.stdin.fileno(), 4096)):
                    return
                *lines, wishes = (wishes + read).split(b"\n")
                for wish in map(json.loads, lines):
                    if "flows" in wish:
                        while len(flows) > wish["flows"]:
                            flows.pop().close()
                        while len(flows) < wish["flows"]:
                            flows.append(_Flow((job["load"], job["port"]), selector))
                    else:
                        child.send(sent=sent)
                        sent = []
            now_s = time.monotonic()
            streams.send(now_s)
            sent += canary.send(now_s)
            for flow in flows:
                flow.look(now_s)


if __name__ == "__main__":
    child.main(work)
