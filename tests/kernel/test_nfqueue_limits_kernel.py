"""Counts and limits of the nfqueue datapath with real packets (topology.py draws the topology).

Buckets that do not fill let an exact number of packets pass, so every count here is exact.
"""

from __future__ import annotations

import socket
import threading
from ipaddress import ip_address

import pytest
from scapy.layers.inet import ICMP, IP, UDP, fragment
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    fragment6,
)
from scapy.layers.ipsec import AH, ESP
from scapy.layers.l2 import GRE
from scapy.packet import Packet, Raw

from drld.model import NS_PER_S, Enforcement, FlowKey, Measurement
from drld.policy import Mode

from .nfqueue import Start, went_wrong
from .packets import (
    LENGTH,
    NOTHING,
    SINK,
    SINK_TOO,
    SOURCE,
    TCP_NUMBER,
    UDP_NUMBER,
    UNLIMITED,
    both_directions,
    both_families,
    limit,
    only,
    send_udp,
    ten_of_25_pass,
)
from .topology import Topology, wait_for


@both_families
@both_directions
def test_udp_is_counted_to_the_byte_and_limited(
    topology: Topology, start: Start, family: int, interface: str
) -> None:
    datapath = start()
    datapath.attach((limit(1, interface, SINK[family]), only(10, LENGTH[family])))
    total = ten_of_25_pass(topology, datapath, family)
    ((flow, count),) = total.flows.items()
    assert isinstance(flow, FlowKey)
    assert flow.protocol == UDP_NUMBER
    assert flow.source == ip_address(SOURCE[family]).packed
    assert flow.destination == ip_address(SINK[family]).packed
    assert flow.destination_port == 9000
    assert count <= 25 * LENGTH[family]
    assert went_wrong(datapath) == {}


@both_families
def test_tcp_arrives_whole_at_the_rate_of_the_bucket(
    topology: Topology, start: Start, family: int
) -> None:
    payload = bytes(range(256)) * 500
    depth = 20_000
    bucket = Enforcement(fill_rate=100_000, depth=depth)
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[family], protocol=TCP_NUMBER), bucket))

    def listen() -> socket.socket:
        kind = socket.AF_INET6 if family == 6 else socket.AF_INET
        return socket.create_server((SINK[family], 8000), family=kind)

    received = b""
    with topology.capture() as capture, topology.within("sink", listen) as listener:

        def send() -> None:
            with socket.create_connection((SINK[family], 8000)) as connection:
                connection.sendall(payload)

        sender = threading.Thread(target=lambda: topology.within("source", send))
        sender.start()
        accepted, _ = listener.accept()
        with accepted:
            while data := accepted.recv(65536):
                received += data
        sender.join()

        def counted() -> tuple[Measurement, list[bytes]]:
            return datapath.total(1), [packet for packet in capture.wait(0) if _tcp(packet)]

        # The last acknowledgement may still be under way.
        total, captured = wait_for(
            counted, lambda seen: sum(map(len, seen[1])) == seen[0].forwarded_tokens
        )
    assert received == payload
    # The queue splits what the sender's GSO put together: every packet has its size on the wire.
    assert max(map(len, captured)) <= 1500
    assert sum(map(len, captured)) == total.forwarded_tokens
    assert total.arrived_tokens == total.forwarded_tokens + total.dropped_tokens
    elapsed_s = total.interval_ns / NS_PER_S
    assert total.forwarded_tokens <= depth + bucket.fill_rate * elapsed_s


def _tcp(packet: bytes) -> bool:
    return packet[9 if packet[0] >> 4 == 4 else 6] == TCP_NUMBER


OTHERS: dict[str, tuple[Packet, int]] = {
    "icmp": (IP(src=SOURCE[4], dst=SINK[4]) / ICMP() / Raw(bytes(56)), 1),
    "gre": (IP(src=SOURCE[4], dst=SINK[4]) / GRE() / IP(dst="10.0.0.1") / UDP(), 47),
    "esp": (IP(src=SOURCE[4], dst=SINK[4]) / ESP(spi=1, seq=1, data=bytes(40)), 50),
    "icmpv6": (IPv6(src=SOURCE[6], dst=SINK[6]) / ICMPv6EchoRequest(data=bytes(56)), 58),
    "extension headers": (
        IPv6(src=SOURCE[6], dst=SINK[6])
        / IPv6ExtHdrHopByHop()
        / IPv6ExtHdrDestOpt()
        / AH(nh=UDP_NUMBER, payloadlen=4, spi=1, seq=1, icv=bytes(12))
        / UDP(sport=1, dport=9000)
        / Raw(bytes(30)),
        UDP_NUMBER,
    ),
    "routing header": (
        IPv6(src=SOURCE[6], dst=SINK[6])
        / IPv6ExtHdrRouting(type=4, addresses=[SINK[6]], segleft=0)
        / UDP(sport=1, dport=9000)
        / Raw(bytes(30)),
        UDP_NUMBER,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_protocol_is_limited(topology: Topology, start: Start, name: str) -> None:
    packet, protocol = OTHERS[name]
    data = bytes(packet)
    destination = SINK[data[0] >> 4]
    datapath = start()
    datapath.attach((limit(1, "out0", destination, protocol=protocol), only(3, len(data))))
    with topology.capture() as capture:
        topology.send([data] * 7)
        total = datapath.wait(1, 7)
        captured = capture.wait(3)
    assert [len(packet) for packet in captured] == [len(data)] * 3
    assert (total.arrived_tokens, total.forwarded_tokens) == (7 * len(data), 3 * len(data))
    assert total.dropped_items == 4
    assert went_wrong(datapath) == {}


@both_families
def test_later_fragments_fall_under_prefix_limits_but_not_under_port_limits(
    topology: Topology, start: Start, family: int
) -> None:
    udp: Packet = UDP(sport=1, dport=9000) / Raw(bytes(3000))
    parts: list[Packet]
    if family == 4:
        parts = fragment(IP(src=SOURCE[4], dst=SINK[4], id=7) / udp, 1400)  # type: ignore[no-untyped-call]  # scapy has no types
    else:
        whole: Packet = IPv6(src=SOURCE[6], dst=SINK[6]) / IPv6ExtHdrFragment(id=7) / udp
        parts = fragment6(whole, 1400)  # type: ignore[no-untyped-call]  # scapy has no types
    packets = [bytes(part) for part in parts]
    assert len(packets) == 3
    datapath = start()
    datapath.attach(
        (limit(1, "out0", protocol=UDP_NUMBER, ports=((9000, 9000),)), UNLIMITED),
        (limit(2, "out0", SINK[family]), only(1, sum(map(len, packets)))),
    )
    with topology.capture() as capture:
        topology.send(packets * 2)
        total = datapath.wait(2, 6)
        assert len(capture.wait(3)) == 3
    by_port = datapath.total(1)
    assert (by_port.arrived_items, by_port.arrived_tokens) == (2, 2 * len(packets[0]))
    assert (total.arrived_tokens, total.forwarded_tokens) == (
        2 * sum(map(len, packets)),
        sum(map(len, packets)),
    )
    assert datapath.counters()["fragments"] == 6


def test_packets_whose_headers_end_early_are_limited_by_what_can_be_read(
    topology: Topology, start: Start
) -> None:
    base = IPv6(src=SOURCE[6], dst=SINK[6])
    short = bytes(base / Raw(b"\x00\x01"))
    short = short[:6] + bytes([UDP_NUMBER]) + short[7:]
    chain: Packet = base
    for _ in range(9):
        chain /= IPv6ExtHdrDestOpt()
    chain /= UDP(sport=1, dport=9000) / Raw(bytes(30))
    long = bytes(chain)
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[6]), only(1, len(short) + len(long))))
    with topology.capture() as capture:
        topology.send([short, long, short, long])
        total = datapath.wait(1, 4)
        assert sorted(map(len, capture.wait(2))) == sorted([len(short), len(long)])
    assert total.arrived_tokens == 2 * (len(short) + len(long))
    counters = datapath.counters()
    assert (counters["malformed"], counters["truncated"]) == (2, 2)


def test_packets_of_the_other_direction_and_of_no_limit_pass(
    topology: Topology, start: Start
) -> None:
    datapath = start()
    datapath.attach(
        (limit(1, "out0", SINK[4]), NOTHING),
        (limit(2, "in0", protocol=TCP_NUMBER), NOTHING),
    )
    with (
        topology.udp("source", SOURCE[4], 9000) as back,
        topology.udp("sink", SINK[4]) as sink,
        topology.capture() as capture,
    ):
        send_udp(topology, SINK[4], 3)  # refused
        send_udp(topology, SINK_TOO[4], 4)  # not limited
        assert datapath.wait(1, 3).dropped_items == 3
        assert len(capture.wait(4)) == 4
        sink.sendto(b"answer", (SOURCE[4], 9000))
        back.settimeout(30)
        assert back.recv(100) == b"answer"
    # All seven were looked at on their way in, where only TCP_NUMBER is limited.
    assert datapath.counters()["unmatched"] >= 7
    assert datapath.total(2).arrived_items == 0


def test_packets_to_and_from_the_limiter_itself_are_limited(
    topology: Topology, start: Start
) -> None:
    datapath = start()
    datapath.attach(
        (limit(1, "in0", "10.91.1.2"), only(2)),
        (limit(2, "out0", SINK[4]), only(3)),
    )
    with topology.udp("limiter", "10.91.1.2", 9000) as local, topology.capture() as capture:
        send_udp(topology, "10.91.1.2", 5)
        assert datapath.wait(1, 5).forwarded_items == 2
        for _ in range(2):
            assert len(local.recv(2000)) == 100
        for _ in range(5):
            local.sendto(bytes(100), (SINK[4], 9000))
        assert datapath.wait(2, 5).forwarded_items == 3
        assert len(capture.wait(3)) == 3


def test_several_limits_are_all_charged_or_none(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach(
        (limit(1, "out0", SINK[4]), only(8)),
        (limit(2, "out0", "10.91.0.0/16"), only(10)),
    )
    with topology.capture() as capture:
        send_udp(topology, SINK_TOO[4], 5)
        datapath.wait(2, 5)
        send_udp(topology, SINK[4], 12)
        customer, site = datapath.wait(1, 12), datapath.wait(2, 17)
        assert len(capture.wait(10)) == 10
        # The customer paid only for what the site let through: three are left.
        datapath.program(2, Enforcement(fill_rate=0, depth=None))
        send_udp(topology, SINK[4], 5)
        assert datapath.wait(1, 17).forwarded_items == 8
        assert len(capture.wait(13)) == 13
    assert (customer.arrived_items, customer.forwarded_items) == (12, 5)
    assert customer.dropped_items == 0
    assert (site.arrived_items, site.forwarded_items, site.dropped_items) == (17, 10, 7)


def test_shadow_mode_counts_and_forwards_everything(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4], mode=Mode.SHADOW), only(4)))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 10)
        total = datapath.wait(1, 10)
        assert len(capture.wait(10)) == 10
    assert (total.forwarded_items, total.dropped_items) == (4, 6)
