"""UDP traffic of a run, as processes of the testbed.

`python -m testbed.udptraffic send` sends for all UDP sources of a run (`testbed.datagrams`),
through a raw socket in the namespace of each group. A source port is then a number in a header, and
takes no descriptor. It has priority over ordinary processes, and reports its largest lateness.

`python -m testbed.udptraffic receive` runs in the sink. It counts the payload of each source, in
bytes, in steps of 200 ms.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import struct
import time
from typing import Any

from testbed import child, netns
from testbed.datagrams import UDP_HEADERS, UdpGroup, UdpTable
from testbed.udprecord import LATE_NS

_SO_RCVBUFFORCE = 33
_RECEIVE_BUFFER = 32 * 1024 * 1024
_LARGEST = 65_536
_LAST_WAIT_S = 0.3
_HEADER = struct.Struct(">HHHH")
"""The UDP header: source port, destination port, length, checksum (0: none)."""
_UDP_HEADER = 8


class _Source:
    """One source; times are from the start of the run."""

    def __init__(
        self, group: UdpGroup, number: int, spec: dict[str, Any], raw: socket.socket, port: int
    ) -> None:
        """`spec` has start and end; `port` is the destination port."""
        self.bursts = group.bursts(spec["start_ns"], spec["end_ns"])
        """The times of its bursts."""
        self.sent = 0
        self._group = group
        self._number = number
        self._raw = raw
        self._port = port

    def send(self) -> None:
        """Send a burst."""
        group, length = self._group, self._group.table.size - UDP_HEADERS + _UDP_HEADER
        payload = bytes(length - _UDP_HEADER)
        for _ in range(group.table.burst):
            port = group.port(self._number, self.sent)
            self._raw.send(_HEADER.pack(port, self._port, length, 0) + payload)
            self.sent += 1


def send_datagrams() -> None:
    """Send for the sources of all groups."""
    job = child.receive()
    sources = [source for group in job["groups"] for source in _sources_of(group)]
    child.send(ready=True, priority=child.raise_priority())
    begin_ns: int = child.receive()["start_ns"]
    agenda = [
        (at_ns, number)
        for number, source in enumerate(sources)
        if (at_ns := next(source.bursts, None)) is not None
    ]
    heapq.heapify(agenda)
    late_ns = 0
    while agenda:
        due_ns, number = agenda[0]
        now_ns = time.monotonic_ns() - begin_ns
        if now_ns < due_ns:
            time.sleep((due_ns - now_ns) / 1e9)
            continue
        late_ns = max(late_ns, now_ns - due_ns)
        if late_ns > LATE_NS:
            break  # the run does not count, and nothing is sent long after its end
        sources[number].send()
        next_ns = next(sources[number].bursts, None)
        if next_ns is None:
            heapq.heappop(agenda)
        else:
            heapq.heapreplace(agenda, (next_ns, number))
    child.send(result={"late_ns": late_ns, "sent": [source.sent for source in sources]})


def _sources_of(spec: dict[str, Any]) -> list[_Source]:
    group = UdpGroup("", "", UdpTable.model_construct(**spec["table"]))

    def connect() -> socket.socket:
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        raw.connect((spec["destination"], 0))
        return raw

    raw = netns.within(spec["namespace"], connect)
    port = spec["destination_port"]
    return [_Source(group, number, one, raw, port) for number, one in enumerate(spec["sources"])]


def receive_datagrams() -> None:
    """Count the received bytes of every source, from the start to the end of the run."""
    job = child.receive()
    step_ns: int = job["step_ns"]
    steps: int = job["duration_ns"] // step_ns
    groups = {
        spec["address"]: UdpGroup("", "", UdpTable.model_construct(**spec["table"]))
        for spec in job["groups"]
    }
    counts: dict[tuple[str, int], list[int]] = {}
    buffer = bytearray(_LARGEST)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        selectors.DefaultSelector() as selector,
    ):
        receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        receiver.bind(("", job["port"]))
        receiver.setblocking(False)
        selector.register(receiver, selectors.EVENT_READ)
        child.send(ready=True)
        begin_ns: int = child.receive()["start_ns"]
        end_ns = begin_ns + job["duration_ns"] + round(_LAST_WAIT_S * 1e9)
        while (now_ns := time.monotonic_ns()) < end_ns:
            if not selector.select((end_ns - now_ns) / 1e9):
                continue
            size, (address, port) = receiver.recvfrom_into(buffer)
            step = (time.monotonic_ns() - begin_ns) // step_ns
            if 0 <= step < steps:
                source = address, groups[address].source_of(port)
                counts.setdefault(source, [0] * steps)[step] += size
    child.send(
        result=[
            {"address": address, "source": source, "bytes": steps_of}
            for (address, source), steps_of in counts.items()
        ]
    )


if __name__ == "__main__":
    child.main_of({"send": send_datagrams, "receive": receive_datagrams})
