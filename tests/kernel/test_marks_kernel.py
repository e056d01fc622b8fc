"""Congestion marks on real packets, on both datapaths, as their receiver sees them."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from drld.model import NS_PER_S, Enforcement
from drld.police.flow_bucket import MAX_TOKENS
from drld.police.policer import Excess
from drld.policy import Mode

from .packets import (
    LENGTH,
    PAYLOAD,
    SINK,
    SOURCE,
    TCP_NUMBER,
    UDP_NUMBER,
    both_directions,
    both_families,
    limit,
    only,
)
from .remote import RemoteDatapath, RemoteKernelDatapath, RemoteNfqueueDatapath
from .topology import DEADLINE_S, Topology

pytestmark = pytest.mark.alone

NOT_ECT, ECT_1, ECT_0, CE = range(4)
_ECN = Path("/proc/sys/net/ipv4/tcp_ecn")
SENT = 320_000
"""Bytes of a stream."""
LARGEST_CONTROL = 80
"""Bytes of a TCP packet without data, over IPv6, at most."""
LARGEST_DATA = 1500
"""Bytes of a TCP packet with data, at most."""

Datapaths = Callable[[], RemoteDatapath]
both_datapaths = pytest.mark.parametrize("datapaths", ["kernel", "nfqueue"], indirect=True)


@pytest.fixture
def datapaths(topology: Topology, request: pytest.FixtureRequest) -> Iterator[Datapaths]:
    """Starts a process with a datapath; it ends with the test."""
    processes: list[RemoteDatapath] = []

    def start() -> RemoteDatapath:
        namespace = topology.names["limiter"]
        if request.param == "kernel":
            processes.append(RemoteKernelDatapath(namespace, "lim1"))
        else:
            processes.append(RemoteNfqueueDatapath(namespace, "lim1", "iptables", None))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def per_flow(family: int, packets: int) -> Enforcement:
    """Let a flow owe fewer packets than this. Beyond, it lacks its part of the reserve.

    A flow's bucket goes on filling while the host stands still: a packet takes 16 s of it. So the
    bounds lie half a packet away from whole packets, and a pause of 5 s changes no verdict.
    """
    depth = 100_000 * LENGTH[family]
    return Enforcement(
        depth=depth,
        flow_rate=8,
        flow_depth=packets * LENGTH[family],
        reserve=depth + depth // (2 * packets),
    )


def send(topology: Topology, family: int, ecn: int, packets: int, port: int = 7001) -> None:
    with topology.udp("source", SOURCE[family], port) as sender:
        if family == 4:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn)
        else:
            sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, ecn)
        # On one processor they stay in order: each has a queue of its own of what crossed a link.
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
        try:
            for _ in range(packets):
                sender.sendto(bytes(PAYLOAD), (SINK[family], 9000))
        finally:
            os.sched_setaffinity(0, allowed)


def receiver(topology: Topology, family: int) -> socket.socket:
    """A socket at the sink that says how its packets were marked."""
    made = topology.udp("sink", SINK[family], 9000)
    made.settimeout(DEADLINE_S)
    if family == 4:
        made.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    else:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    return made


def received(sink: socket.socket, packets: int) -> list[int]:
    """The two bits of so many packets; they are whole."""
    marks = []
    for _ in range(packets):
        data, ((_, _, content),), _, _ = sink.recvmsg(2000, 64)
        assert data == bytes(PAYLOAD)
        marks.append(content[0] & 3)
    return marks


@both_families
@both_directions
@both_datapaths
def test_a_capable_flow_beyond_its_bucket_is_marked_and_then_dropped(
    topology: Topology, datapaths: Datapaths, interface: str, family: int
) -> None:
    datapath = datapaths()
    marks = limit(1, interface, protocol=UDP_NUMBER, excess=Excess.MARK)
    datapath.attach((marks, per_flow(family, 10)))
    with receiver(topology, family) as sink:
        send(topology, family, ECT_0, 25)
        total = datapath.wait(1, 25)
        assert received(sink, 20) == [ECT_0] * 9 + [CE] * 11
        # Packets that are not capable are dropped; another flow has a bucket of its own.
        send(topology, family, NOT_ECT, 25, port=7002)
        total = datapath.wait(1, 50)
        assert received(sink, 9) == [NOT_ECT] * 9
    assert (total.marked_items, total.marked_tokens) == (11, 11 * LENGTH[family])
    assert (total.forwarded_items, total.dropped_items) == (29, 21)
    assert sorted(total.hits.values()) == [16 * LENGTH[family]] * 2


@both_datapaths
def test_a_marked_packet_keeps_its_mark(topology: Topology, datapaths: Datapaths) -> None:
    datapath = datapaths()
    datapath.attach((limit(1, "out0", protocol=UDP_NUMBER, excess=Excess.MARK), per_flow(4, 10)))
    with receiver(topology, 4) as sink:
        send(topology, 4, CE, 25)
        total = datapath.wait(1, 25)
        assert received(sink, 20) == [CE] * 20
    assert total.marked_items == 11


@both_families
@both_datapaths
def test_one_mark_of_several_limits_marks_the_packet(
    topology: Topology, datapaths: Datapaths, family: int
) -> None:
    datapath = datapaths()
    site = limit(2, "out0", protocol=UDP_NUMBER)
    shadow = limit(3, "out0", protocol=UDP_NUMBER, excess=Excess.MARK, mode=Mode.SHADOW)
    customer = limit(1, "out0", SINK[family], protocol=UDP_NUMBER, excess=Excess.MARK)
    datapath.attach(
        (customer, per_flow(family, 10)),
        (site, only(18, LENGTH[family])),
        (shadow, per_flow(family, 5)),
    )
    with receiver(topology, family) as sink:
        send(topology, family, ECT_1, 25)
        total = datapath.wait(1, 25)
        assert received(sink, 18) == [ECT_1] * 9 + [CE] * 9
    # A packet that the site refuses is charged to no bucket, and no limit marks it.
    assert (total.marked_items, total.dropped_items) == (9, 0)
    assert datapath.wait(2, 25).dropped_items == 7
    assert datapath.wait(3, 25).marked_items == 6


@both_datapaths
def test_a_reload_lets_a_limit_mark_and_keeps_its_flows(
    topology: Topology, datapaths: Datapaths
) -> None:
    datapath = datapaths()
    datapath.attach((limit(1, "out0", protocol=UDP_NUMBER), per_flow(4, 10)))
    with receiver(topology, 4) as sink:
        send(topology, 4, ECT_0, 12)
        datapath.wait(1, 12)
        assert received(sink, 9) == [ECT_0] * 9
        marks = limit(1, "out0", protocol=UDP_NUMBER, excess=Excess.MARK)
        datapath.attach((marks, per_flow(4, 10)))
        send(topology, 4, ECT_0, 12)
        total = datapath.wait(1, 24)
        assert received(sink, 11) == [CE] * 11
        datapath.attach((limit(1, "out0", protocol=UDP_NUMBER), per_flow(4, 30)))
        send(topology, 4, ECT_0, 12)
        total = datapath.wait(1, 36)
        assert received(sink, 9) == [ECT_0] * 9
    assert (total.forwarded_items, total.marked_items, total.dropped_items) == (29, 11, 7)


@pytest.fixture
def ecn(topology: Topology) -> Iterator[None]:
    """TCP of both ends asks for ECN."""

    def switch(value: str) -> str:
        before = _ECN.read_text()
        _ECN.write_text(value)
        return before

    before = {role: topology.within(role, lambda: switch("1")) for role in ("source", "sink")}
    yield
    for role, value in before.items():
        topology.within(role, partial(switch, value))


def retransmissions(sender: socket.socket) -> int:
    """Segments that this end has sent again (tcpi_total_retrans, linux/tcp.h)."""
    information = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int.from_bytes(information[100:104], sys.byteorder)


@both_families
@both_datapaths
@pytest.mark.usefixtures("ecn")
def test_a_stream_whose_every_packet_is_marked_arrives_whole(
    topology: Topology, datapaths: Datapaths, family: int
) -> None:
    """TCP that negotiated ECN, in super-packets."""
    datapath = datapaths()
    depth = 5 * 10**6
    marks_all = Enforcement(
        depth=depth, flow_rate=10**9, flow_depth=2 * SENT, reserve=MAX_TOKENS // NS_PER_S
    )
    # A packet with 1,400 bytes of data leaves more than the bucket has, and a flow may owe it all.
    assert marks_all.reserve * 1400 // marks_all.flow_depth > depth
    datapath.attach((limit(1, "in0", protocol=TCP_NUMBER, excess=Excess.MARK), marks_all))
    content = b"".join(hashlib.sha256(bytes([n % 256])).digest() for n in range(SENT // 32))
    came = bytearray()
    kind = socket.AF_INET if family == 4 else socket.AF_INET6

    def accept() -> None:
        made, _ = listening.accept()
        with made:
            while data := made.recv(65536):
                came.extend(data)

    def listen() -> socket.socket:
        return socket.create_server((SINK[family], 9000), family=kind)

    with topology.within("sink", listen) as listening:
        reader = threading.Thread(target=accept)
        reader.start()
        with topology.within("source", lambda: socket.socket(kind)) as sender:
            sender.settimeout(DEADLINE_S)
            sender.connect((SINK[family], 9000))
            sender.sendall(content)
            sender.shutdown(socket.SHUT_WR)
            reader.join(DEADLINE_S)
            repeated = retransmissions(sender)
    assert bytes(came) == content
    total = datapath.total(1)
    # All but what is not ECN-capable, which may be dropped: SYN, pure acknowledgements, FIN, and
    # what is sent again (RFC 3168, section 6.1.5), as it is on a host that is late.
    assert total.marked_tokens >= len(content)
    control = LARGEST_CONTROL * total.dropped_items
    assert total.dropped_tokens <= control + LARGEST_DATA * repeated
