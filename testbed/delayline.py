"""The delay line: emulated links for hosts without netem, as one process.

Every queue of the router's namespace is one link (`testbed.delay`). Rules in its FORWARD chain
choose the queue by the outgoing interface. Packets wait in the kernel, and the process gets only
their metadata. It reports its own error, and the packets that the kernel dropped because of it.

It waits in select(2), whose timeout has microseconds. It uses a real-time scheduler if the host
permits: a timer fires about 30 us late with it, and 80 us without.
"""

from __future__ import annotations

import errno
import gc
import heapq
import select
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path
from random import Random

from testbed import child, nfqueue_wire
from testbed.delay import DelayedLink, ErrorAccount
from testbed.errors import HostError

_QUEUE_LENGTH = 100_000
_RECEIVE_BUFFER = 32 * 1024 * 1024
_SO_RCVBUFFORCE = 33
_SO_TIMESTAMP = 29
_READ_BATCH = 16
_RELEASE_BATCH = 8
"""Packets released in one system call, in which the kernel delivers each to its receiver."""
_IDLE_S = 1.0
_OLDEST_STAMP_NS = 1_000_000_000
_QUEUE_STATISTICS = Path("/proc/thread-self/net/netfilter/nfnetlink_queue")


class DelayLine:
    """Several links on one netlink socket."""

    def __init__(self, links: dict[int, DelayedLink]) -> None:
        """Bind the queues; `links` by queue number."""
        self._links = links
        self._heads: list[tuple[int, int]] = []
        self._account = ErrorAccount()
        self._stamped = 0
        self._overruns = 0
        self._buffer = bytearray(8192)
        # The kernel stamps packets as long as some socket asks for it.
        self._stamper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._stamper.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMP, 1)
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW, nfqueue_wire.NETLINK_NETFILTER
        )
        self._socket.bind((0, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        for queue in links:
            for message in nfqueue_wire.bind(queue, _QUEUE_LENGTH):
                self._request(message)
        self._socket.setblocking(False)

    def _request(self, message: bytes) -> None:
        self._socket.send(message)
        answer = nfqueue_wire.parse(self._buffer, self._socket.recv_into(self._buffer))
        if not isinstance(answer, nfqueue_wire.Failure) or answer.errno:
            raise HostError(f"cannot bind an NFQUEUE queue: {answer}")

    def serve(self, control: int) -> None:
        """Delay packets until `control` becomes readable; packets overdue by then count."""
        descriptors = [self._socket.fileno(), control]
        while True:
            due = self._release()
            wait_s = _IDLE_S if due is None else max(due - time.monotonic_ns(), 0) / 1e9
            ready, _, _ = select.select(descriptors, [], [], wait_s)
            if ready:
                self._read()
            if control in ready:
                break
        while self._read():
            pass
        while (due := self._release()) is not None and due <= time.monotonic_ns():
            pass

    def _read(self) -> bool:
        """Read a few packets; not all, so that due packets do not wait.

        Returns whether more may wait.
        """
        for _ in range(_READ_BATCH):
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._overruns += 1
                continue
            packet = nfqueue_wire.parse(self._buffer, size)
            if isinstance(packet, nfqueue_wire.Failure):
                raise HostError(f"the kernel refused a verdict: errno {packet.errno}")
            link = self._links[packet.queue]
            idle = link.next_due is None
            link.arrive(packet.id, self._arrival_ns(packet.stamp_ns))
            if idle and link.next_due is not None:
                heapq.heappush(self._heads, (link.next_due, packet.queue))
        return True

    def _arrival_ns(self, stamp_ns: int | None) -> int:
        now_ns = time.monotonic_ns()
        if stamp_ns is None:
            return now_ns
        age_ns = time.time_ns() - stamp_ns
        if not -_OLDEST_STAMP_NS < age_ns < _OLDEST_STAMP_NS:
            return now_ns  # the real-time clock was set, or the stamp means something else
        self._stamped += 1
        return now_ns - max(age_ns, 0)

    def _release(self) -> int | None:
        """Release one batch of due packets; return when the next packet is due."""
        now_ns = time.monotonic_ns()
        heads = self._heads
        if not heads or heads[0][0] > now_ns:
            return heads[0][0] if heads else None
        _, queue = heapq.heappop(heads)
        link = self._links[queue]
        actions, dues = link.release(now_ns, _RELEASE_BATCH)
        self._socket.send(
            b"".join(
                nfqueue_wire.accept_through(queue, action.through)
                if action.accept
                else nfqueue_wire.drop(queue, action.through)
                for action in actions
            )
        )
        # The kernel has delivered them by now, so the error is never underestimated.
        released_ns = time.monotonic_ns()
        for due in dues:
            self._account.add(released_ns - due)
        if link.next_due is not None:
            heapq.heappush(heads, (link.next_due, queue))
        return heads[0][0] if heads else None

    def report(self) -> dict[str, object]:
        """The error so far, and the counts of failures."""
        report = self._account.report(
            lost=sum(link.lost for link in self._links.values()),
            stamped=self._stamped,
            overflow=self._overruns + _kernel_drops(),
        )
        return asdict(report)


def _kernel_drops() -> int:
    """Packets that the kernel dropped at full queues of this namespace."""
    rows = (line.split() for line in _QUEUE_STATISTICS.read_text(encoding="ascii").splitlines())
    return sum(int(row[5]) + int(row[6]) for row in rows)


def work() -> None:
    """Serve the links of the job until a line (or the end) comes on the standard input."""
    job = child.receive()
    links = {
        link["queue"]: DelayedLink(link["delay_ns"], link["loss"], Random(link["seed"]))
        for link in job["links"]
    }
    line = DelayLine(links)
    # This code makes no reference cycles, and a garbage collection is a pause.
    gc.freeze()
    gc.disable()
    child.send(ready=True, priority=child.raise_priority())
    line.serve(sys.stdin.fileno())
    child.send(result=line.report())


if __name__ == "__main__":
    child.main(work)
