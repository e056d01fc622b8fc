"""TCP at full speed: a sender and a sink that live through all slices, as processes.

The sender keeps its connections and counts the bytes that the sink's TCP acknowledges, so the sink
reports nothing. Bytes of a slice that are still unsent are sent before it ends. Both use system
calls on large pieces, so that processor time is spent in the kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import resource
import select
import socket
import struct
import time
from collections import Counter
from typing import Any

from testbed import child
from testbed.cpu import CpuTimes
from testbed.errors import MeasurementError
from testbed.traffic import CONGESTION_CONTROL

PORT = 5003

_CHUNK = memoryview(bytes(1 << 20))
_TCP_INFO_BYTES = 128
_ACKNOWLEDGED = struct.Struct("=Q")
_ACKNOWLEDGED_OFFSET = 120
_SIOCOUTQ = 0x5411
_DRAIN_S = 5.0
_POLL_S = 0.002


class _Flows:
    """Connections to one destination, or to several in turn."""

    def __init__(self, destinations: list[str], count: int, buffer: int | None) -> None:
        self.by_descriptor: dict[int, socket.socket] = {}
        self.destinations: dict[int, str] = {}
        self.epoll = select.epoll()
        for destination in itertools.islice(itertools.cycle(destinations), count):
            flow = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION_CONTROL.encode())
            if buffer is not None:
                flow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
            flow.connect((destination, PORT))
            flow.setblocking(False)
            self.by_descriptor[flow.fileno()] = flow
            self.destinations[flow.fileno()] = destination
            self.epoll.register(flow.fileno(), select.EPOLLOUT)

    def acknowledged(self) -> Counter[str]:
        """Total bytes that arrived, by destination."""
        found: Counter[str] = Counter()
        for descriptor, flow in self.by_descriptor.items():
            information = flow.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            (size,) = _ACKNOWLEDGED.unpack_from(information, _ACKNOWLEDGED_OFFSET)
            found[self.destinations[descriptor]] += size
        return found

    def send_until(self, end: float) -> None:
        """Keep all connections busy."""
        while (left := end - time.monotonic()) > 0:
            for descriptor, _ in self.epoll.poll(left):
                with contextlib.suppress(BlockingIOError):
                    self.by_descriptor[descriptor].send(_CHUNK)

    def drain(self) -> None:
        """Wait until all sent bytes have arrived.

        Raises:
            MeasurementError: it does not.
        """
        last = time.monotonic() + _DRAIN_S
        for flow in self.by_descriptor.values():
            while struct.unpack("=i", fcntl.ioctl(flow, _SIOCOUTQ, b"\0" * 4))[0]:
                if time.monotonic() > last:
                    raise MeasurementError("a flow got stuck")
                time.sleep(_POLL_S)


def send_slices() -> None:
    """Send for a slice whenever asked.

    A request names destinations, seconds, warm-up, and whether to drain.
    """
    job = child.receive()
    _allow_files()
    flows: dict[str, _Flows] = {}
    child.send(ready=True)
    while True:
        request: dict[str, Any] = child.receive()
        destinations: list[str] = request["destinations"]
        if destinations[0] not in flows:
            flows[destinations[0]] = _Flows(destinations, job["flows"], job["buffer"])
        busy = flows[destinations[0]]
        busy.send_until(time.monotonic() + request["warmup"])
        cpu, begin, first = CpuTimes.now(), time.monotonic(), busy.acknowledged()
        busy.send_until(begin + request["seconds"])
        used, end, last = cpu.until(CpuTimes.now()), time.monotonic(), busy.acknowledged()
        if request["drain"]:
            busy.drain()
        size = last.total() - first.total()
        cores = used["busy"] * (os.cpu_count() or 1)
        child.send(
            bps=size * 8 / (end - begin),
            cpu_s_per_gb=cores * (end - begin) / max(size, 1) * 1e9,
            each={to: (last[to] - first[to]) * 8 / (end - begin) for to in destinations},
        )


def take_all() -> None:
    """Receive all bytes, and drop them."""
    child.receive()
    _allow_files()
    listener = socket.create_server(("", PORT), backlog=4096)
    buffer = bytearray(1 << 20)
    connections: dict[int, socket.socket] = {}
    epoll = select.epoll()
    epoll.register(listener.fileno(), select.EPOLLIN)
    child.send(ready=True)
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                connections[connection.fileno()] = connection
                epoll.register(connection.fileno(), select.EPOLLIN)
            elif not _take(connections[descriptor], buffer):
                epoll.unregister(descriptor)
                connections.pop(descriptor).close()


def _take(connection: socket.socket, buffer: bytearray) -> int:
    try:
        return connection.recv_into(buffer)
    except ConnectionError:
        return 0


def _allow_files() -> None:
    """Raise the limit of open files to the host's maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    child.main_of({"send": send_slices, "take": take_all})
