"""Traffic: long TCP flows, as processes of the testbed.

`python -m testbed.traffic send` runs in a source's namespace and opens the flows of one group. Each
has its own port, by which the sink tells them apart. `python -m testbed.traffic receive` runs in
the sink, reads all flows, and counts the application bytes of each in steps of 200 ms.

Every connection has selective acknowledgements and the congestion control of its group (default New
Reno), and uses ECN if the group does. The sender checks all three, as the kernel reports no
refusal.
"""

from __future__ import annotations

import errno
import heapq
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed import child
from testbed.errors import HostError

CONGESTION_CONTROL = "reno"
FIRST_PORT = 20_000

_OFFERED = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_TCP_NOTSENT_LOWAT = 25
_UNSENT = 64 * 1024
"""Most bytes that wait unsent, as they are lost at the end of a flow."""
_CHUNK = memoryview(bytes(_UNSENT))
_TCPI_OPT_SACK, _TCPI_OPT_ECN = 2, 8
_SO_RCVBUFFORCE = 33
_TCP_INFO_SIZE = 104
_OTHER_DESCRIPTORS = 64
_LAST_WAIT_S = 0.3
"""Time for which the sink goes on after the end, for flows on slow paths."""


def set_congestion(connection: socket.socket, control: str) -> None:
    """Give a socket a congestion control.

    Raises:
        HostError: the kernel does not offer it.
    """
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    except OSError as error:
        offered = _OFFERED.read_text(encoding="ascii").strip()
        raise HostError(
            f"this kernel does not offer the congestion control {control} ({offered}): {error}"
        ) from None
    chosen = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    if chosen.rstrip(b"\0").decode() != control:
        raise HostError(f"the congestion control of a socket is {chosen!r}, not {control}")


def check_congestion(controls: Iterable[str]) -> None:
    """See whether this kernel offers these congestion controls.

    Raises:
        HostError: one of them is missing.
    """
    for control in controls:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            set_congestion(trial, control)


class _SendingFlow:
    """One connection of the sender."""

    def __init__(
        self, spec: dict[str, Any], job: dict[str, Any], destination: tuple[str, int]
    ) -> None:
        self.id: str = spec["id"]
        self.port: int = spec["port"]
        self.end_ns: int = spec["end_ns"]
        self.start_ns: int = spec["start_ns"]
        self._source: str = job["source"]
        self._congestion: str = job.get("congestion", CONGESTION_CONTROL)
        self._ecn: bool = job.get("ecn", False)
        self._destination = destination
        self.socket: socket.socket | None = None
        self.syn_ns: int | None = None
        self.connected_ns: int | None = None
        self.retransmits = 0
        self.rtt_ms: float | None = None
        self.error: str | None = None

    def open(self) -> socket.socket:
        """Send the SYN."""
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket = connection
        connection.setblocking(False)
        set_congestion(connection, self._congestion)
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT)
        # A flow ends with a reset, and leaves no packets behind.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind((self._source, self.port))
        self.syn_ns = time.monotonic_ns()
        outcome = connection.connect_ex(self._destination)
        if outcome not in (0, errno.EINPROGRESS):
            raise OSError(outcome, f"flow {self.id} cannot connect")
        return connection

    def push(self) -> bool:
        """Send as much as fits; False if the connection is broken."""
        assert self.socket is not None
        try:
            if self.connected_ns is None:
                self._connected()
            self.socket.send(_CHUNK)
        except BlockingIOError:
            return True
        except OSError as error:
            self.error = error.strerror
            return False
        return True

    def _connected(self) -> None:
        assert self.socket is not None
        outcome = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if outcome:
            raise OSError(outcome, f"cannot connect: {os.strerror(outcome)}")
        self.connected_ns = time.monotonic_ns()
        agreed = self._information()[5]
        if not agreed & _TCPI_OPT_SACK:
            raise OSError(errno.EPROTO, "selective acknowledgements were not agreed on")
        if bool(agreed & _TCPI_OPT_ECN) != self._ecn:
            wanted = "was not agreed on" if self._ecn else "was agreed on, and not asked for"
            raise OSError(errno.EPROTO, f"ECN {wanted}")

    def _information(self) -> bytes:
        assert self.socket is not None
        return self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)

    def close(self) -> None:
        """End the flow now, and keep the kernel's information about it."""
        if self.socket is None:
            return
        if self.error is None and self.connected_ns is not None:
            information = self._information()
            (rtt_us,) = struct.unpack_from("=I", information, 68)
            (self.retransmits,) = struct.unpack_from("=I", information, 100)
            self.rtt_ms = rtt_us / 1000
        self.socket.close()

    def report(self, begin_ns: int) -> dict[str, Any]:
        """A report of the flow; times in seconds from the start of the run."""
        return {
            "id": self.id,
            "port": self.port,
            "syn_s": None if self.syn_ns is None else (self.syn_ns - begin_ns) / 1e9,
            "connected_s": None
            if self.connected_ns is None
            else (self.connected_ns - begin_ns) / 1e9,
            "retransmits": self.retransmits,
            "rtt_ms": self.rtt_ms,
            "error": self.error,
        }


def send_flows() -> None:
    """Run the flows of one group."""
    job = child.receive()
    destination = (job["destination"], job["destination_port"])
    flows = [_SendingFlow(spec, job, destination) for spec in job["flows"]]
    _allow_descriptors(len(flows))
    child.send(ready=True)
    begin_ns: int = child.receive()["start_ns"]
    with selectors.DefaultSelector() as selector:
        _drive(flows, selector, begin_ns)
    child.send(result=[flow.report(begin_ns) for flow in flows])


def _allow_descriptors(sockets: int) -> None:
    """Raise the limit of open files to the number of flows.

    Raises:
        OSError: the host refuses.
    """
    needed = sockets + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY:
            hard = max(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _drive(flows: list[_SendingFlow], selector: selectors.BaseSelector, begin_ns: int) -> None:
    """Open and close the flows at their times, and keep them busy in between."""
    agenda = [(begin_ns + flow.start_ns, 0, index) for index, flow in enumerate(flows)]
    agenda += [(begin_ns + flow.end_ns, 1, index) for index, flow in enumerate(flows)]
    heapq.heapify(agenda)
    while agenda:
        wait_s = (agenda[0][0] - time.monotonic_ns()) / 1e9
        for key, _ in selector.select(max(wait_s, 0)):
            flow: _SendingFlow = key.data
            if not flow.push():
                selector.unregister(key.fileobj)
        while agenda and agenda[0][0] <= time.monotonic_ns():
            _, ending, index = heapq.heappop(agenda)
            flow = flows[index]
            if not ending:
                selector.register(flow.open(), selectors.EVENT_WRITE, flow)
            elif flow.socket is not None:
                if flow.error is None:
                    selector.unregister(flow.socket)
                flow.close()


def receive_flows() -> None:
    """Count the received bytes of every flow, from the start to the end of the run."""
    job = child.receive()
    step_ns: int = job["step_ns"]
    steps: int = job["duration_ns"] // step_ns
    listener = socket.create_server(("", job["port"]), backlog=4096)
    if job["window"] is not None:
        # Connections inherit both. A fixed buffer does not grow, and neither does the clamp.
        listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, job["window"])
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, job["window"])
    listener.setblocking(False)
    _allow_descriptors(job["flows"])
    child.send(ready=True)
    begin_ns: int = child.receive()["start_ns"]
    end_ns = begin_ns + job["duration_ns"]
    counts: dict[tuple[str, int], list[int]] = {}
    buffer = bytearray(1 << 18)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        while (now_ns := time.monotonic_ns()) < end_ns + _LAST_WAIT_S * 1e9:
            for key, _ in selector.select((end_ns - now_ns) / 1e9 + _LAST_WAIT_S):
                if key.fileobj is listener:
                    connection, peer = listener.accept()
                    connection.setblocking(False)
                    counts[peer] = [0] * steps
                    selector.register(connection, selectors.EVENT_READ, counts[peer])
                    continue
                assert isinstance(key.fileobj, socket.socket)
                received = _receive(key.fileobj, buffer)
                if received == 0:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    continue
                step = (time.monotonic_ns() - begin_ns) // step_ns
                if received is not None and 0 <= step < steps:
                    key.data[step] += received
    listener.close()
    child.send(
        result=[
            {"source": address, "port": port, "bytes": steps_of}
            for (address, port), steps_of in counts.items()
        ]
    )


def _receive(connection: socket.socket, buffer: bytearray) -> int | None:
    """Number of bytes received; 0: the flow has ended; None: no bytes wait."""
    try:
        return connection.recv_into(buffer)
    except BlockingIOError:
        return None
    except OSError:
        return 0


if __name__ == "__main__":
    child.main_of({"send": send_flows, "receive": receive_flows})
