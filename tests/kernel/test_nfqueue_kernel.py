"""The nfqueue datapath against real packets (the topology is drawn in topology.py).

Buckets that do not fill let an exact number of packets pass, so every count here is exact.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from random import Random

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

from drld.capture.packet_queue import QUEUE_PACKETS, TURN
from drld.capture.rules import ChainState, Point, iptables_install, nft_install, plan
from drld.errors import DatapathError
from drld.model import NS_PER_S, Enforcement, FlowKey
from drld.spec import Direction, LimitSpec, Match, Mode, OnFailure

from ..factories import limit_spec
from .remote import RemoteNfqueueDatapath
from .topology import Topology, wait_for

pytestmark = pytest.mark.kernel

Start = Callable[..., RemoteNfqueueDatapath]

TCP, UDP_NUMBER = 6, 17
UNLIMITED = Enforcement()
NOTHING = Enforcement(drop_probability=1.0)
SINK = {4: "10.91.2.1", 6: "fd91:2::1"}
SINK_TOO = {4: "10.91.3.1", 6: "fd91:3::1"}
SOURCE = {4: "10.91.1.1", 6: "fd91:1::1"}
HEADERS = {4: 28, 6: 48}
"""Bytes of IP and UDP header."""

both_families = pytest.mark.parametrize("family", [4, 6])


def only(packets: int, length: int) -> Enforcement:
    """Let so many packets of so many bytes pass, ever."""
    return Enforcement(fill_rate=0, depth=packets * length)


def limit(
    limit_id: int,
    interface: str,
    destination: str | None = None,
    *,
    mode: Mode = Mode.ENFORCE,
    on_failure: OnFailure = OnFailure.DEFAULT,
    source: str | None = None,
    protocol: int | None = None,
    ports: tuple[tuple[int, int], ...] = (),
    mark: tuple[int, int] | None = None,
) -> LimitSpec:
    """A limit on packets in at in0 or out at out0."""
    match = Match(
        interface,
        Direction.IN if interface.startswith("in") else Direction.OUT,
        source=ip_network(source) if source else None,
        destination=ip_network(destination) if destination else None,
        protocol=protocol,
        destination_ports=ports,
        mark=mark,
    )
    return limit_spec(
        id=limit_id, name=f"limit-{limit_id}", match=match, mode=mode, on_failure=on_failure
    )


def send_udp(
    topology: Topology, destination: str, packets: int, *, payload: int = 100, port: int = 9000
) -> None:
    family = 6 if ":" in destination else 4
    with topology.udp("source", SOURCE[family]) as sender:
        for _ in range(packets):
            sender.sendto(bytes(payload), (destination, port))


def rules(topology: Topology) -> list[str]:
    """All firewall rules in the limiter's namespace, without counters and comments."""
    saved = [
        line.split(" [")[0]
        for tool in ("iptables-save", "ip6tables-save")
        for line in topology.run("limiter", tool).splitlines()
        if not line.startswith("#")
    ]
    # What iptables made shows here too, with counters.
    listed = topology.run("limiter", "nft", "--stateless", "list", "ruleset").splitlines()
    return saved + listed


def our_rules(topology: Topology) -> list[str]:
    return [line for line in rules(topology) if "drld" in line]


def went_wrong(datapath: RemoteNfqueueDatapath) -> dict[str, int]:
    """The counters that are not zero, but for those of how packets were charged."""
    charged = ("stamped_ebpf", "stamped_kernel", "unstamped")
    return {name: n for name, n in datapath.counters().items() if n and name not in charged}


def queues(topology: Topology) -> list[int]:
    """Bound queue numbers in the limiter's namespace."""
    listed = topology.run("limiter", "cat", "/proc/net/netfilter/nfnetlink_queue", check=False)
    return [int(line.split()[0]) for line in listed.splitlines()]


# Counting and limiting


@both_families
@pytest.mark.parametrize("interface", ["in0", "out0"])
def test_udp_is_counted_to_the_byte_and_limited(
    topology: Topology, start: Start, family: int, interface: str
) -> None:
    length = 100 + HEADERS[family]
    datapath = start()
    datapath.attach((limit(1, interface, SINK[family]), only(10, length)))
    with topology.udp("sink", SINK[family], 9000) as sink, topology.capture() as capture:
        send_udp(topology, SINK[family], 25)
        total = datapath.wait(1, 25)
        assert len(capture.wait(10)) == 10
        assert len(sink.recv(2000)) == 100
    assert (total.arrived_packets, total.arrived_bytes) == (25, 25 * length)
    assert (total.forwarded_packets, total.forwarded_bytes) == (10, 10 * length)
    assert (total.dropped_packets, total.dropped_bytes) == (15, 15 * length)
    ((flow, count),) = total.flows.items()
    assert isinstance(flow, FlowKey)
    assert flow.protocol == UDP_NUMBER
    assert flow.source == socket.inet_pton(sink.family, SOURCE[family])
    assert flow.destination == socket.inet_pton(sink.family, SINK[family])
    assert flow.destination_port == 9000
    assert count <= 25 * length
    assert went_wrong(datapath) == {}


@both_families
def test_tcp_arrives_whole_at_the_rate_of_the_bucket(
    topology: Topology, start: Start, family: int
) -> None:
    payload = bytes(range(256)) * 500
    bucket = Enforcement(fill_rate=100_000, depth=20_000)
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[family], protocol=TCP), bucket))

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
        total = wait_for(lambda: datapath.total(1), lambda total: total.forwarded_packets > 0)
        captured = [packet for packet in capture.wait(total.forwarded_packets) if _tcp(packet)]
    assert received == payload
    # The queue splits what the sender's GSO put together: every packet has its size on the wire.
    assert max(map(len, captured)) <= 1500
    assert sum(map(len, captured)) == total.forwarded_bytes
    assert total.arrived_bytes == total.forwarded_bytes + total.dropped_bytes
    elapsed_s = total.interval_ns / NS_PER_S
    assert total.forwarded_bytes <= bucket.depth + bucket.fill_rate * elapsed_s  # type: ignore[operator]


def _tcp(packet: bytes) -> bool:
    return packet[9 if packet[0] >> 4 == 4 else 6] == TCP


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
    assert (total.arrived_bytes, total.forwarded_bytes) == (7 * len(data), 3 * len(data))
    assert total.dropped_packets == 4
    assert went_wrong(datapath) == {}


@both_families
def test_later_fragments_fall_under_prefix_limits_but_not_under_port_limits(
    topology: Topology, start: Start, family: int
) -> None:
    udp: Packet = UDP(sport=1, dport=9000) / Raw(bytes(3000))
    parts: list[Packet]
    if family == 4:
        parts = fragment(IP(src=SOURCE[4], dst=SINK[4], id=7) / udp, 1400)  # type: ignore[no-untyped-call]
    else:
        whole: Packet = IPv6(src=SOURCE[6], dst=SINK[6]) / IPv6ExtHdrFragment(id=7) / udp
        parts = fragment6(whole, 1400)  # type: ignore[no-untyped-call]
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
    assert (by_port.arrived_packets, by_port.arrived_bytes) == (2, 2 * len(packets[0]))
    assert (total.arrived_bytes, total.forwarded_bytes) == (
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
    assert total.arrived_bytes == 2 * (len(short) + len(long))
    counters = datapath.counters()
    assert (counters["malformed"], counters["truncated"]) == (2, 2)


def test_the_other_direction_and_what_no_limit_names_pass(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach(
        (limit(1, "out0", SINK[4]), NOTHING),
        (limit(2, "in0", protocol=TCP), NOTHING),
    )
    with (
        topology.udp("source", SOURCE[4], 9000) as back,
        topology.udp("sink", SINK[4]) as sink,
        topology.capture() as capture,
    ):
        send_udp(topology, SINK[4], 3)  # refused
        send_udp(topology, SINK_TOO[4], 4)  # not limited
        assert datapath.wait(1, 3).dropped_packets == 3
        assert len(capture.wait(4)) == 4
        sink.sendto(b"answer", (SOURCE[4], 9000))
        back.settimeout(30)
        assert back.recv(100) == b"answer"
    # All seven were looked at on their way in, where only TCP is limited.
    assert datapath.counters()["unmatched"] >= 7
    assert datapath.total(2).arrived_packets == 0


def test_packets_to_and_from_the_limiter_itself_are_limited(
    topology: Topology, start: Start
) -> None:
    datapath = start()
    datapath.attach(
        (limit(1, "in0", "10.91.1.2"), only(2, 128)),
        (limit(2, "out0", SINK[4]), only(3, 128)),
    )
    with topology.udp("limiter", "10.91.1.2", 9000) as local, topology.capture() as capture:
        send_udp(topology, "10.91.1.2", 5)
        assert datapath.wait(1, 5).forwarded_packets == 2
        for _ in range(2):
            assert len(local.recv(2000)) == 100
        for _ in range(5):
            local.sendto(bytes(100), (SINK[4], 9000))
        assert datapath.wait(2, 5).forwarded_packets == 3
        assert len(capture.wait(3)) == 3


def test_several_limits_are_all_charged_or_none(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach(
        (limit(1, "out0", SINK[4]), only(8, 128)),
        (limit(2, "out0", "10.91.0.0/16"), only(10, 128)),
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
        assert datapath.wait(1, 17).forwarded_packets == 8
        assert len(capture.wait(13)) == 13
    assert (customer.arrived_packets, customer.forwarded_packets) == (12, 5)
    assert customer.dropped_packets == 0
    assert (site.arrived_packets, site.forwarded_packets, site.dropped_packets) == (17, 10, 7)


def test_shadow_mode_counts_and_forwards_everything(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4], mode=Mode.SHADOW), only(4, 128)))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 10)
        total = datapath.wait(1, 10)
        assert len(capture.wait(10)) == 10
    assert (total.forwarded_packets, total.dropped_packets) == (4, 6)


# Other people's things


def _plant_other_rules(topology: Topology) -> None:
    for tool in ("iptables", "ip6tables"):
        for arguments in (
            "-N theirs",
            "-A theirs -j RETURN",
            "-A PREROUTING -i in0 -p udp --dport 7000 -j MARK --set-xmark 0x15/0xff",
            "-A PREROUTING -j theirs",
            "-A POSTROUTING -j theirs",
            "-N drld-lim10-in",  # of another limiter
            "-A drld-lim10-in -i lo -j RETURN",
            "-A PREROUTING -j drld-lim10-in",
        ):
            topology.run("limiter", tool, "-t", "mangle", *arguments.split())
        # iptables-nft makes a built-in chain when it is first used, and then keeps it.
        for arguments in (
            "-N theirs",
            "-A theirs -j RETURN",
            "-A FORWARD -j theirs",
            "-A OUTPUT -j theirs",
        ):
            topology.run("limiter", tool, "-t", "security", *arguments.split())
        topology.run(
            "limiter", tool, "-A", "FORWARD", "-m", "mark", "--mark", "0x15", "-j", "ACCEPT"
        )
    topology.run("limiter", "nft", "add table inet drld-lim10")


def test_rules_of_others_stay_as_they_are(topology: Topology, start: Start) -> None:
    _plant_other_rules(topology)
    before = rules(topology)
    datapath = start()
    datapath.attach((limit(1, "out0"), UNLIMITED), (limit(2, "in0"), UNLIMITED))
    during = rules(topology)
    assert [line for line in before if line not in during] == []
    assert len(during) > len(before)
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    after = rules(topology)
    assert [line for line in before if line not in after] == []
    datapath.detach()
    datapath.detach()
    assert rules(topology) == before
    assert queues(topology) == []


def test_marks_are_seen_and_stay(topology: Topology, start: Start) -> None:
    _plant_other_rules(topology)
    datapath = start()
    datapath.attach(
        (limit(1, "in0", mark=(0x05, 0x0F)), UNLIMITED),
        (limit(2, "out0", mark=(0x15, 0xFF)), UNLIMITED),
        (limit(3, "out0", mark=(0x00, 0xFF)), UNLIMITED),
    )
    send_udp(topology, SINK[4], 3, port=7000)
    send_udp(topology, SINK[4], 2, port=7001)
    assert datapath.wait(2, 3).arrived_packets == 3
    assert datapath.wait(3, 2).arrived_packets == 2
    assert datapath.total(1).arrived_packets == 3
    seen = topology.run("limiter", "iptables", "-nvxL", "FORWARD")
    (row,) = [line.split() for line in seen.splitlines() if "0x15" in line]
    assert row[0] == "3"


def test_a_queue_that_somebody_holds_is_left_alone(topology: Topology, start: Start) -> None:
    first = start("lim1")
    first.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    taken = first.queue()
    before = rules(topology)

    stranger = start("lim2", queue=taken)
    with pytest.raises(DatapathError, match=f"NFQUEUE {taken}"):
        stranger.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    assert (rules(topology), queues(topology)) == (before, [taken])

    # The same name asks for the same number; the next one is free.
    first.kill()
    holder = start("lim2", queue=taken)
    holder.attach((limit(1, "out0", SINK_TOO[4]), UNLIMITED))
    second = start("lim1")
    second.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    assert second.queue() == taken + 1
    assert queues(topology) == [taken, taken + 1]
    send_udp(topology, SINK[4], 3)
    assert second.wait(1, 3).arrived_packets == 3
    second.detach()
    assert queues(topology) == [taken]


def test_two_limiters_share_a_host(topology: Topology, start: Start) -> None:
    one, two = start("lim1"), start("lim2")
    one.attach((limit(1, "in0", SINK[4]), only(6, 128)))
    two.attach((limit(1, "out0", SINK[4]), only(4, 128)))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 10)
        assert one.wait(1, 10).forwarded_packets == 6
        assert two.wait(1, 6).forwarded_packets == 4
        one.detach()
        send_udp(topology, SINK[4], 5)
        assert two.wait(1, 11).arrived_packets == 11
        assert len(capture.wait(4)) == 4


def test_rules_may_be_the_operators(topology: Topology, start: Start, firewall: str) -> None:
    spec = limit(1, "out0", SINK[4])
    datapath = start(tool="none")
    datapath.attach((spec, only(2, 128)))
    queue = datapath.queue()
    assert our_rules(topology) == []
    nothing = dict.fromkeys(Point, ChainState())
    if firewall == "nft":
        topology.run("limiter", "nft", "-f", "-", stdin=nft_install("lim1", plan([spec]), queue))
    else:
        script = iptables_install("lim1", plan([spec]), queue, 4, nothing)
        topology.run("limiter", "iptables-restore", "--noflush", stdin=script)
    installed = our_rules(topology)
    send_udp(topology, SINK[4], 5)
    assert datapath.wait(1, 5).forwarded_packets == 2
    datapath.detach()
    assert our_rules(topology) == installed


# Death, failure, reload


def test_leftovers_of_a_killed_run_are_replaced(topology: Topology, start: Start) -> None:
    first = start()
    first.attach((limit(1, "in0"), NOTHING), (limit(2, "out0"), NOTHING))
    installed = our_rules(topology)
    first.kill()
    assert our_rules(topology) == installed

    second = start()
    second.attach((limit(1, "in0"), UNLIMITED), (limit(2, "out0"), UNLIMITED))
    assert our_rules(topology) == installed
    second.attach((limit(2, "out0", SINK[4]), only(2, 128)))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 5)
        assert second.wait(2, 5).forwarded_packets == 2
        assert len(capture.wait(2)) == 2
    assert second.total(2).arrived_packets == 5  # once each, not once for each leftover
    second.detach()
    assert our_rules(topology) == []


def test_leftovers_of_the_other_tool_are_removed(
    topology: Topology, start: Start, firewall: str
) -> None:
    _plant_other_rules(topology)
    before = rules(topology)
    if firewall == "iptables":
        topology.run("limiter", "nft", "add table inet drld-lim1")
    else:
        for tool in ("iptables", "ip6tables"):
            for arguments in ("-N drld-lim1-in", "-A PREROUTING -j drld-lim1-in"):
                topology.run("limiter", tool, "-t", "mangle", *arguments.split())
        # iptables-nft makes a built-in chain when it is first used, and then keeps it.
        for arguments in (
            "-N theirs",
            "-A theirs -j RETURN",
            "-A FORWARD -j theirs",
            "-A OUTPUT -j theirs",
        ):
            topology.run("limiter", tool, "-t", "security", *arguments.split())
    assert rules(topology) != before
    datapath = start()
    datapath.attach((limit(1, "in0"), UNLIMITED))
    datapath.detach()
    assert rules(topology) == before


@both_families
@pytest.mark.parametrize(
    ("settings", "passes"),
    [
        ([OnFailure.OPEN], True),
        ([OnFailure.CLOSED], False),
        ([OnFailure.DEFAULT], False),
        ([OnFailure.OPEN, OnFailure.OPEN], True),
    ],
    ids=["open", "closed", "default", "both"],
)
def test_what_happens_when_the_daemon_is_dead(
    topology: Topology, start: Start, family: int, settings: list[OnFailure], passes: bool
) -> None:
    datapath = start()
    datapath.attach(
        *(
            (limit(number, "out0", SINK[family], on_failure=setting), UNLIMITED)
            for number, setting in enumerate(settings, 1)
        )
    )
    with topology.capture() as capture:
        datapath.kill()
        send_udp(topology, SINK[family], 5)
        # Sent after, and let through: when it is here the five would be too.
        send_udp(topology, SINK_TOO[family], 1, payload=77)
        wait_for(lambda: capture.wait(0), lambda seen: bool(seen) and len(seen[-1]) < 128)
        assert len(capture.packets) == (6 if passes else 1)


@pytest.mark.parametrize("on_failure", [OnFailure.OPEN, OnFailure.DEFAULT])
def test_a_packet_whose_judgement_raises_gets_the_verdict_of_a_dead_daemon(
    topology: Topology, start: Start, on_failure: OnFailure
) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4], on_failure=on_failure), UNLIMITED))
    with topology.capture() as capture:
        datapath.break_judging()
        send_udp(topology, SINK[4], 5)
        counters = wait_for(datapath.counters, lambda counters: counters["errors"] >= 5)
        datapath.break_judging(False)
        send_udp(topology, SINK[4], 3)
        assert datapath.wait(1, 3).forwarded_packets == 3
        expected = 8 if on_failure is OnFailure.OPEN else 3
        assert len(capture.wait(expected)) == expected
    assert counters["errors"] == 5


def test_a_reload_keeps_tokens_and_counters(topology: Topology, start: Start) -> None:
    datapath = start()
    bucket = only(10, 128)
    datapath.attach((limit(1, "out0", SINK[4]), bucket), (limit(2, "in0"), UNLIMITED))
    send_udp(topology, SINK[4], 6)
    datapath.wait(2, 6)
    datapath.attach(
        (limit(1, "out0", "10.91.0.0/16"), bucket), (limit(3, "out0", protocol=TCP), NOTHING)
    )
    send_udp(topology, SINK_TOO[4], 6)
    total = datapath.wait(1, 12)
    assert (total.arrived_packets, total.forwarded_packets) == (12, 10)
    with pytest.raises(KeyError):
        datapath.total(2)


def test_no_packet_slips_through_a_reload(topology: Topology, start: Start) -> None:
    datapath = start()
    sets = [
        [(limit(1, "out0", SINK[4]), NOTHING)],
        [(limit(1, "out0"), NOTHING), (limit(2, "in0", SINK_TOO[4]), NOTHING)],
    ]
    datapath.attach(*sets[0])
    done = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        with topology.udp("source", SOURCE[4]) as sender:
            while not done.is_set():
                sender.sendto(bytes(100), (SINK[4], 9000))
                sent += 1
                done.wait(0.0005)

    with topology.capture() as capture:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            for reload in range(10):
                datapath.attach(*sets[reload % 2])
        finally:
            done.set()
            sender.join()
        total = wait_for(
            lambda: datapath.total(1),
            lambda total: total.arrived_packets + datapath.counters()["overflow"] >= sent,
        )
        assert capture.wait(0) == []
    assert total.arrived_packets == total.dropped_packets
    # A slow host may fill the queue meanwhile.
    assert total.arrived_packets + datapath.counters()["overflow"] == sent
    assert total.arrived_packets > 50


def test_packets_flow_while_a_tool_takes_its_time(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    datapath = start(path=tmp_path)
    datapath.attach((limit(1, "out0"), only(4, 128)))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    tool = "nft" if firewall == "nft" else "iptables-restore"
    script = tmp_path / tool
    script.write_text(f'#!/bin/sh\nread _ <{gate}\nPATH=/usr/sbin:/sbin exec {tool} "$@"\n')
    script.chmod(0o755)
    reload = threading.Thread(target=lambda: datapath.attach((limit(1, "out0"), UNLIMITED)))
    with topology.capture() as capture:
        reload.start()
        with gate.open("w") as opened:  # the tool has begun
            send_udp(topology, SINK[4], 5)
            assert len(capture.wait(4)) == 4
            assert reload.is_alive()
            opened.write("go on\n")
        reload.join()
        assert datapath.wait(1, 5).forwarded_packets == 4
        send_udp(topology, SINK[4], 3)
        assert len(capture.wait(7)) == 7


def test_what_waits_at_detach_gets_its_verdict(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), only(4, 128)))
    queue = datapath.queue()
    datapath.pause()
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 10)
        wait_for(lambda: _waiting(topology, queue), lambda waiting: waiting == 10)
        datapath.detach()
        assert len(capture.wait(4)) == 4
    assert datapath.total(1).forwarded_packets == 4


def _waiting(topology: Topology, queue: int) -> int:
    listed = topology.run("limiter", "cat", "/proc/net/netfilter/nfnetlink_queue")
    rows = (line.split() for line in listed.splitlines())
    return next(int(row[2]) for row in rows if int(row[0]) == queue)


def test_a_drain_is_bounded(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    queue = datapath.queue()
    datapath.pause()
    send_udp(topology, SINK[4], TURN + 44)
    wait_for(lambda: _waiting(topology, queue), lambda waiting: waiting == TURN + 44)
    assert [datapath.drain() for _ in range(3)] == [TURN, 44, 0]


def test_every_packet_gets_its_own_verdict_however_they_mix(
    topology: Topology, start: Start
) -> None:
    datapath = start()
    refused = limit(1, "out0", protocol=UDP_NUMBER, ports=((9001, 9001),))
    datapath.attach((refused, NOTHING), (limit(2, "out0"), UNLIMITED))
    queue = datapath.queue()
    datapath.pause()
    rng = Random(3)
    passes = [rng.random() < 0.5 for _ in range(TURN - 50)] + [True] * 40 + [False] * 50
    with topology.capture() as capture, topology.udp("source", SOURCE[4]) as sender:
        for number, passing in enumerate(passes):
            sender.sendto(number.to_bytes(2, "big"), (SINK[4], 9000 if passing else 9001))
        wait_for(lambda: _waiting(topology, queue), lambda waiting: waiting == len(passes))
        datapath.pause(False)
        assert datapath.wait(1, passes.count(False)).dropped_packets == passes.count(False)
        seen = [int.from_bytes(packet[28:30], "big") for packet in capture.wait(passes.count(True))]
    assert seen == [number for number, passing in enumerate(passes) if passing]
    assert _waiting(topology, queue) == 0


def test_what_does_not_fit_into_the_queue_is_counted(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    datapath.pause()
    with topology.capture() as capture:
        send_udp(topology, SINK[4], QUEUE_PACKETS + 100)
        wait_for(datapath.counters, lambda counters: counters["overflow"] >= 100)
        datapath.pause(False)
        total = datapath.wait(1, QUEUE_PACKETS)
        assert len(capture.wait(QUEUE_PACKETS)) == QUEUE_PACKETS
    assert total.arrived_packets == QUEUE_PACKETS
    assert datapath.counters()["overflow"] == 100


def test_an_interface_may_go_and_come_back(topology: Topology, start: Start) -> None:
    """It has another index then."""

    def make() -> int:
        pair = "link add in1 type veth peer name k1 netns " + topology.names["sink"]
        topology.run("limiter", "ip", *pair.split())
        topology.run("limiter", "ip", "addr", "add", "10.91.4.2/24", "dev", "in1")
        topology.run("limiter", "ip", "link", "set", "in1", "up")
        topology.run("sink", "ip", "addr", "add", "10.91.4.1/24", "dev", "k1")
        topology.run("sink", "ip", "link", "set", "k1", "up")
        return topology.within("limiter", lambda: socket.if_nametoindex("in1"))

    datapath = start()
    first = make()
    try:
        datapath.attach((limit(1, "in1", "10.91.4.2"), UNLIMITED))
        with topology.udp("sink", "10.91.4.1") as sender:
            sender.sendto(b"", ("10.91.4.2", 9000))
        assert datapath.wait(1, 1).arrived_packets == 1
        topology.run("limiter", "ip", "link", "delete", "in1")
        assert make() != first
        with topology.udp("sink", "10.91.4.1") as sender:
            sender.sendto(b"", ("10.91.4.2", 9000))
        assert datapath.wait(1, 2).arrived_packets == 2
    finally:
        topology.run("limiter", "ip", "link", "delete", "in1")


def _failing_tools(directory: Path, firewall: str) -> Path:
    """Tools that refuse rules as long as the returned file is there."""
    switch = directory / "refuse"
    tool = "nft" if firewall == "nft" else "ip6tables-restore"
    script = directory / tool
    script.write_text(
        "#!/bin/sh\n"
        f'if [ -e {switch} ] && [ "$1" != list ]; then echo out of cheese >&2; exit 4; fi\n'
        f'PATH=/usr/sbin:/sbin exec {tool} "$@"\n'
    )
    script.chmod(0o755)
    return switch


def test_a_failed_attach_leaves_nothing_behind(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    _plant_other_rules(topology)
    before = rules(topology)
    switch = _failing_tools(tmp_path, firewall)
    switch.touch()
    datapath = start(path=tmp_path)
    with pytest.raises(DatapathError, match=r"(nft -f -|ip6tables-restore .*): out of cheese"):
        datapath.attach((limit(1, "out0"), UNLIMITED))
    assert (rules(topology), queues(topology)) == (before, [])
    switch.unlink()
    datapath.attach((limit(1, "out0"), UNLIMITED))
    send_udp(topology, SINK[4], 2)
    assert datapath.wait(1, 2).arrived_packets == 2


def test_a_failed_reload_changes_nothing(
    topology: Topology, start: Start, firewall: str, tmp_path: Path
) -> None:
    switch = _failing_tools(tmp_path, firewall)
    datapath = start(path=tmp_path)
    datapath.attach((limit(1, "out0"), UNLIMITED))
    before = our_rules(topology)
    switch.touch()
    with pytest.raises(DatapathError, match="out of cheese"):
        datapath.attach((limit(1, "in0"), UNLIMITED))
    # Chains that were made anew are listed in another order.
    assert sorted(our_rules(topology)) == sorted(before)
    send_udp(topology, SINK[4], 2)
    assert datapath.wait(1, 2).arrived_packets == 2
    switch.unlink()
    datapath.detach()
    assert our_rules(topology) == []


def test_flow_keys_are_comparable_across_processes(topology: Topology, start: Start) -> None:
    """What `evict` gets is what `flows` showed."""
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    send_udp(topology, SINK[4], 1)
    (flow,) = datapath.wait(1, 1).flows
    assert isinstance(flow, FlowKey)
    datapath.program(1, UNLIMITED, evict=[flow])
    assert datapath.total(1).flows == {}
