"""A stream of UDP packets that measures one-way delay (see `testbed.linkcheck`)."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

from testbed import child

PORT = 5002

_SENT = struct.Struct("=q")
_TIMESPEC = struct.Struct("=qq")
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER = 32 * 1024 * 1024
_TICK_NS = 500_000
_LAST_WAIT_S = 1.0
_READ_EVERY_S = 0.1


def send_stream() -> None:
    """Send at a constant rate packets of the given size, each with its sending time."""
    job = child.receive()
    padding = bytes(job.get("padding", 0))
    rate: int = job["rate"]
    total = round(rate * job["seconds"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.connect((job["destination"], PORT))
        child.send(ready=True)
        begin_ns: int = child.receive()["start_ns"]
        sent = 0
        while sent < total:
            elapsed_ns = time.monotonic_ns() - begin_ns
            while sent < min(total, elapsed_ns * rate // 1_000_000_000):
                stream.send(_SENT.pack(time.time_ns()) + padding)
                sent += 1
            time.sleep(_TICK_NS / 1e9)
        seconds = (time.monotonic_ns() - begin_ns) / 1e9
    child.send(result={"packets": sent, "seconds": seconds})


def receive_stream() -> None:
    """Receive the packets of a stream, and report each one's delay, ns."""
    job = child.receive()
    delays: list[int] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
        stream.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        stream.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        stream.bind(("", PORT))
        stream.setblocking(False)
        child.send(ready=True)
        last_ns = child.receive()["start_ns"] + round((job["seconds"] + _LAST_WAIT_S) * 1e9)
        while time.monotonic_ns() < last_ns:
            # The kernel keeps packets with their times, and rare reads disturb least.
            time.sleep(_READ_EVERY_S)
            delays += _drain(stream)
    child.send(result=delays)


def _drain(stream: socket.socket) -> Iterator[int]:
    while True:
        try:
            payload, ancillary, _, _ = stream.recvmsg(64, 128)
        except BlockingIOError:
            return
        seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
        yield seconds * 1_000_000_000 + nanoseconds - _SENT.unpack(payload)[0]


if __name__ == "__main__":
    child.main_of({"send": send_stream, "receive": receive_stream})
