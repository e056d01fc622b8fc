"""The BPF program and the pure gate agree about random packets under random limits.

Everything shows in the counters: which limits a packet fell under, in which order (the first that
refuses counts it as dropped), its length, and what was odd about it.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from random import Random

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    Jumbo,
    Pad1,
    PadN,
)
from scapy.layers.ipsec import AH
from scapy.layers.sctp import SCTP
from scapy.packet import Packet, Raw

from drld.capture.gate import Gate
from drld.capture.kernel.datapath import limiter_programs
from drld.capture.kernel.state import Counts
from drld.capture.packet import COPY_BYTES, parse
from drld.capture.spec import Match
from drld.ebpf.bpf import Code
from drld.errors import DatapathError
from drld.model import Enforcement
from drld.police.direction import Direction
from drld.policy import Mode
from drld.spec import LimitSpec

from ..examples import examples
from ..factories import limit_spec
from .bench import ETHERNET, TEST_FLAGS, Bench, Draws

INTERFACE = "eth0"
HOSTS = {
    4: ["10.0.0.1", "10.0.1.1", "10.1.0.1", "11.0.0.1"],
    6: ["fd00::1", "fd00:1::1", "fe00::1"],
}
NETWORKS = {
    4: ["0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/16", "10.0.0.0/24", "10.0.0.1/32", "11.0.0.0/9"],
    6: ["::/0", "fd00::/16", "fd00::/32", "fd00::1/128", "fe00::/9"],
}
PORTS = [1, 80, 443, 1000, 65535]
RANGES = [((80, 80),), ((1, 80),), ((443, 443), (1000, 2000)), ((0, 65535),)]
MARKS = [(1, 0xFF), (0, 1), (0x10, 0xF0), (0xFFFFFFFF, 0xFFFFFFFF)]
PASS, REFUSE = Enforcement(), Enforcement(depth=0)


@pytest.fixture(scope="session")
def code() -> Mapping[str, Code]:
    return limiter_programs(TEST_FLAGS)


@pytest.fixture(scope="session")
def loaded(code: Mapping[str, Code]) -> Iterator[Bench]:
    made = Bench(code, [limit_spec(id=1)])
    yield made
    made.close()


@pytest.fixture
def bench(loaded: Bench) -> Bench:
    """One limit on all packets, with a bucket that no packet exceeds, and counters at zero."""
    loaded.reset([PASS], 0)
    return loaded


def random_limit(rng: Random, number: int) -> LimitSpec:
    family = rng.choice([4, 6])
    protocol = rng.choice([None, None, 1, 6, 17, 58])

    def prefix() -> str | None:
        return rng.choice([None, *NETWORKS[family]])

    source, destination = prefix(), prefix()
    with_ports = protocol in (6, 17) and rng.random() < 0.5
    match = Match(
        INTERFACE,
        Direction.OUT,
        source=ip_network(source) if source else None,
        destination=ip_network(destination) if destination else None,
        protocol=protocol,
        source_ports=rng.choice([(), *RANGES]) if with_ports else (),
        destination_ports=rng.choice([(), *RANGES]) if with_ports else (),
        mark=rng.choice(MARKS) if rng.random() < 0.2 else None,
    )
    return limit_spec(id=number, name=f"l{number}", match=match, mode=rng.choice(list(Mode)))


def random_packet(rng: Random) -> bytes:
    """An IP packet, whole or not, sound or not."""
    layer: Packet
    payload = Raw(bytes(rng.choice([0, 1, 20, 300])))
    sport, dport = rng.choice(PORTS), rng.choice(PORTS)
    upper = rng.choice(
        [
            TCP(sport=sport, dport=dport) / payload,
            UDP(sport=sport, dport=dport) / payload,
            SCTP(sport=sport, dport=dport) / payload,
            ICMP() / payload,
            ICMPv6EchoRequest() / payload,
            payload,
        ]
    )
    if rng.random() < 0.5:
        source, destination = rng.choice(HOSTS[4]), rng.choice(HOSTS[4])
        layer = IP(src=source, dst=destination)
        if rng.random() < 0.2:
            layer.options = [IPOption_Router_Alert()] * rng.randint(1, 9)
        if rng.random() < 0.2:
            layer.flags, layer.frag = rng.choice(["", "MF", "DF"]), rng.choice([0, 1, 100])
    else:
        layer = IPv6(src=rng.choice(HOSTS[6]), dst=rng.choice(HOSTS[6]))
        for _ in range(rng.choice([0, 0, 0, 1, 2, 3, 9])):
            layer /= rng.choice(
                [
                    IPv6ExtHdrHopByHop(options=[PadN(optdata=bytes(rng.choice([0, 4, 12])))]),
                    IPv6ExtHdrHopByHop(options=[Pad1(), Pad1(), Jumbo(jumboplen=70000)]),
                    IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))]),
                    IPv6ExtHdrRouting(addresses=["fd00::5"] * rng.choice([0, 1, 3])),
                    IPv6ExtHdrFragment(offset=rng.choice([0, 0, 5]), m=rng.choice([0, 1])),
                    AH(icv=bytes(12)),
                ]
            )
    data = bytearray(bytes(layer / upper))
    if rng.random() < 0.15:
        data[rng.randrange(len(data))] = rng.choice([0, 0xFF, 0x45, 0x60, 0x46, 44, 6])
    if rng.random() < 0.1 and len(data) > 10:
        struct.pack_into("!H", data, rng.choice([2, 4]), rng.choice([0, 10, 24, 39, 41, 65535]))
    if rng.random() < 0.2:
        del data[rng.randint(1, len(data)) :]
    return bytes(data)


def frame(data: bytes, tags: int = 0) -> bytes:
    """The packet with an Ethernet header and VLAN tags."""
    ethertype = 0x86DD if data and data[0] >> 4 == 6 else 0x0800
    header = ETHERNET
    for tag in range(tags):
        header += struct.pack("!HH", 0x88A8 if tag == 0 and tags == 2 else 0x8100, 10 + tag)
    return header + struct.pack("!H", ethertype) + data


def test_the_program_and_the_gate_agree_on_random_packets(code: Mapping[str, Code]) -> None:
    rng = Random(11)
    # The verifier takes a third of a second for each program, and scapy 2 ms for each packet.
    packets = [random_packet(rng) for _ in range(1000)]
    seen = 0
    for _ in range(examples(24)):
        limits = [random_limit(rng, number) for number in range(1, rng.choice([2, 4, 9]))]
        rng.shuffle(limits)
        try:
            bench = Bench(code, limits)
        except DatapathError as error:
            if "one packet falls under" not in str(error):
                raise
            continue  # test_kernel_layout.py
        with contextlib.closing(bench):
            judge_packets(bench, rng, rng.sample(packets, 400))
        seen += 400
    assert seen > 8000


def judge_packets(bench: Bench, rng: Random, packets: list[bytes]) -> None:
    limits = bench.limits
    records = [rng.choice([PASS, PASS, REFUSE]) for _ in limits]
    bench.reset(records, 0)
    gate = Gate(Draws([]))
    gate.replace(list(zip(limits, records, strict=True)), 0)
    for packet in packets:
        data, mark = as_in_netfilter(packet), rng.choice([0, 1, 0x11, 0xFFFFFFFF])
        # TEST_RUN refuses Ethernet frames of IP that end inside its header, tagged ones not.
        short = len(data) < (40 if data[0] >> 4 == 6 else 20)
        sent = frame(data, rng.choice([1, 2] if short else [0, 0, 1, 2]))
        expected = gate.judge(data[:COPY_BYTES], INTERFACE, Direction.OUT, mark, 0)
        assert bench.packet(sent, mark=mark) == expected, (limits, data.hex(), mark)
        compare(bench, gate, (limits, data.hex(), mark))


def as_in_netfilter(data: bytes) -> bytes:
    """The same, saying that there are no more bytes than there are: others do not get there."""
    said = parse(data)
    if said.family == 4 and said.length > len(data):
        return data[:2] + struct.pack("!H", len(data)) + data[4:]
    if said.family == 6 and said.length > len(data):
        return data[:4] + struct.pack("!H", len(data) - 40) + data[6:]
    return data


def compare(bench: Bench, gate: Gate, example: object) -> None:
    odd = gate.counts
    assert bench.state.parse_anomalies() == [
        odd.truncated,
        odd.malformed,
        odd.fragments,
        odd.unmatched,
    ], example
    for limit in bench.limits:
        policer = gate._policers[limit.id]
        counted = bench.state.counts(bench.slots[limit.id])
        assert counted == Counts(
            forwarded_bytes=policer._forwarded_tokens,
            forwarded_packets=policer._forwarded_items,
            dropped_bytes=policer._dropped_tokens,
            dropped_packets=policer._dropped_items,
            refused_bytes=policer._arrived_tokens
            - policer._forwarded_tokens
            - policer._dropped_tokens,
            refused_packets=policer._arrived_items
            - policer._forwarded_items
            - policer._dropped_items,
            marked_bytes=0,
            marked_packets=0,
        ), (limit, example)


@pytest.mark.parametrize("sizes", [(1000, 2500, 3), (1000, 3000, 3), (500, 300, 1)], ids=str)
@pytest.mark.parametrize("counted", [False, True], ids=["not counted", "counted"])
@pytest.mark.parametrize(
    "network",
    [IP(), IPv6(), IP(options=IPOption_Router_Alert())],
    ids=["IPv4", "IPv6", "IPv4 with options"],
)
def test_a_gso_packet_counts_as_its_segments(
    bench: Bench, network: Packet, counted: bool, sizes: tuple[int, int, int]
) -> None:
    segment, payload, segments = sizes
    data = bytes(
        network / TCP(sport=1, dport=2, options=[("Timestamp", (1, 2))]) / Raw(bytes(payload))
    )
    headers = len(data) - payload
    assert bench.packet(frame(data), segment=segment, segments=segments if counted else 0)
    seen = bench.state.counts(0)
    assert seen.forwarded_bytes == payload + segments * headers
    assert seen.forwarded_packets == segments
    assert sum(bench.state.flows(0)[1::2]) == payload + segments * headers


def test_packets_that_are_not_ip_pass_uncounted(bench: Bench) -> None:
    bench.reset([REFUSE], 0)
    assert bench.packet(ETHERNET + b"\x08\x06" + bytes(46))
    assert sum(bench.state.counts(0)) == sum(bench.state.parse_anomalies()) == 0


def test_a_thousand_flows_are_sampled_without_mixing(bench: Bench) -> None:
    frames = [
        frame(bytes(IP() / UDP(sport=port, dport=2) / Raw(bytes(port)))) for port in range(1, 1001)
    ]
    for sent in frames * 2:
        assert bench.packet(sent)
    flows = bench.state.flows(0)
    pairs = zip(flows[::2], flows[1::2], strict=True)
    counted = {identity: size for identity, size in pairs if identity}
    assert len(counted) == 64
    sizes = {2 * (28 + port) for port in range(1, 1001)}
    assert len(set(counted.values())) == 64
    assert set(counted.values()) <= sizes
