"""A gate that remembers flows judges like one that parses every packet."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass
from ipaddress import ip_network
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture.gate import Counts, Gate
from drld.capture.matcher import Matcher
from drld.capture.packet import Header, outline, parse
from drld.capture.spec import Match
from drld.model import NS_PER_S, Enforcement
from drld.police.direction import Direction
from drld.police.policer import Policer, police
from drld.policy import Mode
from drld.spec import LimitSpec

from ..factories import limit_spec

IN, OUT = Direction.IN, Direction.OUT


def ipv4(protocol: int, *, options: int = 0, fragment: int = 0, ports: bool = True) -> bytes:
    first = 0x45 + options
    fixed = struct.pack("!BBHHHBBH", first, 0, 60 + options * 4, 7, fragment, 64, protocol, 0)
    addresses = bytes([10, 0, 0, 1, 10, 0, 1, 1])
    rest = struct.pack("!HH", 1024, 53) if ports else b""
    return fixed + addresses + bytes(options * 4) + rest + bytes(36 if ports else 0)


def ipv6(following: int, rest: bytes) -> bytes:
    fixed = struct.pack("!IHBB", 6 << 28, len(rest), following, 64)
    return fixed + bytes([0xFD, *bytes(14), 1, 0xFD, *bytes(14), 2]) + rest


PORTS = struct.pack("!HH", 1024, 53) + bytes(16)
PLAIN = {
    "udp": ipv4(17),
    "tcp": ipv4(6),
    "icmp": ipv4(1),
    "udp6": ipv6(17, PORTS),
    "esp6": ipv6(50, PORTS),
    "shortest6": ipv6(17, PORTS[:4]),
}
ODD = {
    "options": ipv4(17, options=3),
    "first fragment": ipv4(17, fragment=0x2000),
    "later fragment": ipv4(17, fragment=0x0001),
    "no room for ports": ipv4(17, ports=False),
    "atomic fragment": ipv6(44, bytes([17, 0, 0, 0, 0, 0, 0, 7]) + PORTS),
    "later fragment6": ipv6(44, bytes([17, 0, 0, 8, 0, 0, 0, 7]) + PORTS),
    "hop-by-hop": ipv6(0, bytes([17, 0, 1, 4, 0, 0, 0, 0]) + PORTS),
    "jumbogram": ipv6(0, b"")[:40] + bytes([17, 0, 0xC2, 4, 0, 1, 0, 0]) + PORTS,
    "authenticated": ipv6(51, bytes([17, 1, *bytes(10)]) + PORTS),
}
PACKETS = {**PLAIN, **ODD}


def variants(data: bytes) -> list[bytes]:
    """All packets that differ in one byte of the headers, and all that end earlier."""
    changed = [
        data[:at] + bytes([value]) + data[at + 1 :]
        for at in range(min(len(data), 64))
        for value in range(256)
    ]
    return changed + [data[:end] for end in range(len(data))]


@pytest.mark.parametrize("name", PLAIN)
def test_the_usual_packets_are_plain(name: str) -> None:
    assert outline(PLAIN[name])[0] is not None


@pytest.mark.parametrize("name", PACKETS)
def test_packets_with_one_outline_have_one_flow_and_limits(name: str) -> None:
    known: dict[Hashable, Header] = {}
    for data in variants(PACKETS[name]):
        plain, length = outline(data)
        if plain is not None:
            header = parse(data)
            assert (header.length, header.defect, header.fragment) == (length, None, False)
            known.setdefault(plain, header)
            assert known[plain]._replace(length=length) == header


class ForgetfulGate:
    """A gate without memory, and without the short cut for a packet under one limit."""

    def __init__(self, rng: Random) -> None:
        self.counts = Counts()
        self._rng = rng
        self.policers: dict[int, Policer] = {}

    def replace(self, limits: list[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        self._matcher = Matcher([limit for limit, _ in limits])
        before, self.policers = self.policers, {}
        for limit, enforcement in limits:
            policer = before.get(limit.id) or Policer(limit.policy, enforcement, now_ns)
            policer.reconfigure(limit.policy)
            policer.program(enforcement, (), now_ns)
            self.policers[limit.id] = policer

    def judge(
        self, data: bytes, interface: str, direction: Direction, mark: int, now_ns: int
    ) -> int:
        header = parse(data)
        if header.defect is not None and header.defect.malformed:
            self.counts.malformed += 1
        elif header.defect is not None:
            self.counts.truncated += 1
        self.counts.fragments += header.fragment
        limits = self._matcher.classify(header, interface, direction, mark)
        self.counts.unmatched += not limits
        policers = [self.policers[limit.id] for limit in limits]
        return police(policers, header.flow, header.length, now_ns, self._rng)


# Conditions that some variants of the packets meet and others just miss.
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(["10.0.0.0/24", "10.0.0.1/32", "fd00::1/128"]).map(ip_network),
        "protocol": st.sampled_from([1, 6, 17, 50]),
        "destination_ports": st.sampled_from([((53, 53),), ((0, 65535),)]),
        "mark": st.sampled_from([(1, 1), (0, 0xFF)]),
    },
)
MATCHES = st.builds(
    lambda interface, direction, conditions: Match(interface, direction, **conditions),
    st.sampled_from(["eth0", "eth1"]),
    st.sampled_from(Direction),
    CONDITIONS,
)
ENFORCEMENTS = st.builds(
    Enforcement,
    drop_probability=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    fill_rate=st.sampled_from([-1000, 0, 1000, 100_000]),
    depth=st.none() | st.integers(0, 500),
)


@st.composite
def limit_sets(draw: st.DrawFn) -> list[tuple[LimitSpec, Enforcement]]:
    matches = draw(st.lists(MATCHES, min_size=1, max_size=4))
    return [
        (
            limit_spec(id=number, match=match, mode=draw(st.sampled_from(Mode))),
            draw(ENFORCEMENTS),
        )
        for number, match in enumerate(matches, 1)
    ]


@dataclass(frozen=True)
class Arrival:
    data: bytes
    interface: str
    direction: Direction
    mark: int
    after_ns: int


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    data = draw(st.sampled_from(sorted(PACKETS.values())))
    if draw(st.booleans()):
        at = draw(st.integers(0, min(len(data), 48) - 1))
        data = data[:at] + bytes([data[at] ^ draw(st.sampled_from([1, 2, 32]))]) + data[at + 1 :]
    if draw(st.integers(0, 7)) == 0:
        data = data[: draw(st.integers(0, len(data)))]
    return Arrival(
        data,
        draw(st.sampled_from(["eth0", "eth0", "eth1"])),
        draw(st.sampled_from([IN, IN, OUT])),
        draw(st.sampled_from([0, 0, 1])),
        draw(st.integers(-NS_PER_S // 100, NS_PER_S // 10)),
    )


@given(
    limits=st.lists(limit_sets(), min_size=1, max_size=3),
    traffic=st.lists(arrivals(), min_size=1, max_size=60),
    memory=st.sampled_from([1, 3, 100]),
)
def test_memory_changes_no_verdict_and_no_count(
    limits: list[list[tuple[LimitSpec, Enforcement]]], traffic: list[Arrival], memory: int
) -> None:
    gate = Gate(Random(5), memory)
    reference = ForgetfulGate(Random(5))
    now_ns = NS_PER_S
    for each in limits:
        gate.replace(each, now_ns)
        reference.replace(each, now_ns)
        for arrival in traffic:
            now_ns += arrival.after_ns
            packet = (arrival.data, arrival.interface, arrival.direction, arrival.mark, now_ns)
            assert gate.judge(*packet) is reference.judge(*packet)
        for limit, _ in each:
            assert gate.read(limit.id, now_ns) == reference.policers[limit.id].read(now_ns)
        assert asdict(gate.counts) == asdict(reference.counts)


@pytest.mark.parametrize("elsewhere", [("eth1", IN, 1), ("eth0", OUT, 1), ("eth0", IN, 0)], ids=str)
def test_one_flow_is_remembered_for_each_place(elsewhere: tuple[str, Direction, int]) -> None:
    gate = Gate(Random(1))
    limit = limit_spec(id=1, match=Match("eth0", IN, mark=(1, 1)))
    gate.replace([(limit, Enforcement(drop_probability=1.0))], 0)
    for _ in range(4):
        assert not gate.judge(PLAIN["udp"], "eth0", IN, 1, 0)
        assert gate.judge(PLAIN["udp"], *elsewhere, 0)


def flood(gate: Gate, packets: int) -> Iterator[int]:
    """How many flows are remembered, after each of 1,000 flows with so many packets."""
    for number in range(1000):
        data = bytearray(PLAIN["udp"])
        data[12:16] = number.to_bytes(4, "big")
        for _ in range(packets):
            assert gate.judge(bytes(data), "eth0", IN, number % 7, 0)
        yield len(gate._known)


def test_a_flood_of_flows_does_not_fill_the_memory() -> None:
    remembered = list(flood(Gate(Random(1), memory=10), packets=2))
    assert (min(remembered), max(remembered)) == (1, 10)


def test_flows_of_one_packet_are_not_remembered() -> None:
    assert max(flood(Gate(Random(1)), packets=1)) < 50
