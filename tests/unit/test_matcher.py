"""The limits that a packet falls under."""

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from drld.capture.matcher import Matcher
from drld.capture.packet import Defect, Header
from drld.capture.spec import Match
from drld.model import FlowKey
from drld.police.direction import Direction
from drld.spec import LimitSpec

from ..factories import limit_spec

TCP, UDP = 6, 17
OUT = Direction.OUT


def limit(limit_id: int, interface: str = "eth1", **conditions: Any) -> LimitSpec:
    match = replace(Match(interface, OUT), **conditions)
    return limit_spec(id=limit_id, name=f"limit-{limit_id}", match=match)


def header(
    source: str = "10.0.0.1",
    destination: str = "10.9.2.1",
    protocol: int = TCP,
    ports: tuple[int, int] | None = (1024, 80),
) -> Header:
    addresses = [ip_network(text).network_address for text in (source, destination)]
    flow = FlowKey(protocol, addresses[0].packed, addresses[1].packed, *(ports or (0, 0)))
    return Header(flow, 1500, addresses[0].version, ports is not None, False, False, None)


def ids(
    limits: list[LimitSpec],
    packet: Header,
    interface: str = "eth1",
    direction: Direction = OUT,
    mark: int = 0,
) -> list[int]:
    return [limit.id for limit in Matcher(limits).classify(packet, interface, direction, mark)]


def test_all_limits_that_match_come_in_the_order_of_the_configuration() -> None:
    limits = [
        limit(9, destination=ip_network("10.9.2.0/24")),
        limit(3),
        limit(7, protocol=TCP),
        limit(1, destination=ip_network("10.9.2.0/24"), protocol=TCP),
        limit(4, destination=ip_network("10.9.3.0/24")),
        limit(5, source=ip_network("10.0.0.0/8"), destination=ip_network("10.0.0.0/8")),
    ]
    assert ids(limits, header()) == [9, 3, 7, 1, 5]
    assert ids(limits[::-1], header()) == [5, 1, 7, 3, 9]


@pytest.mark.parametrize(
    ("prefix", "matches"),
    [
        ("10.9.2.1/32", True),
        ("10.9.2.0/24", True),
        ("0.0.0.0/0", True),
        ("10.9.2.2/32", False),
        ("::/0", False),
        ("::ffff:10.9.2.1/128", False),
    ],
)
def test_a_prefix_matches_the_destinations_in_it(prefix: str, matches: bool) -> None:
    assert bool(ids([limit(1, destination=ip_network(prefix))], header())) is matches


def test_source_and_destination_of_different_families_match_nothing() -> None:
    limits = [limit(1, source=ip_network("10.0.0.0/8"), destination=ip_network("::/0"))]
    assert ids(limits, header()) == []
    assert ids(limits, header("::1", "::2")) == []


def test_a_protocol_matches_exactly() -> None:
    limits = [limit(1, protocol=TCP), limit(2, protocol=UDP), limit(3, protocol=0)]
    assert ids(limits, header()) == [1]
    assert ids(limits, header(protocol=TCP | 0x80)) == []
    assert ids(limits, header(protocol=0, ports=None)) == [3]


@pytest.mark.parametrize(
    ("ranges", "matches"),
    [
        (((80, 80),), True),
        (((0, 65535),), True),
        (((1, 10), (70, 90)), True),
        (((80, 81), (81, 90)), True),
        (((81, 90),), False),
        (((1, 79), (81, 65535)), False),
    ],
)
def test_port_ranges_include_their_ends(ranges: tuple[tuple[int, int], ...], matches: bool) -> None:
    assert bool(ids([limit(1, destination_ports=ranges)], header())) is matches
    swapped = header(ports=(80, 1024))
    assert bool(ids([limit(1, source_ports=ranges)], swapped)) is matches


def test_a_port_condition_never_matches_where_ports_cannot_be_read() -> None:
    limits = [limit(1, destination_ports=((0, 65535),)), limit(2)]
    assert ids(limits, header(ports=(0, 0))) == [1, 2]
    assert ids(limits, header(ports=None)) == [2]


@pytest.mark.parametrize(
    ("condition", "mark", "matches"),
    [
        ((0x10, 0xFF), 0x10, True),
        ((0x10, 0xFF), 0xABCDEF10, True),
        ((0x10, 0xFF), 0x11, False),
        ((0, 0xFFFFFFFF), 0, True),
        ((0, 0xFFFFFFFF), 1, False),
        ((0, 0), 77, True),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, True),
        ((0x11, 0x10), 0x11, False),  # a value outside its mask
    ],
)
def test_a_mark_matches_in_the_bits_of_its_mask(
    condition: tuple[int, int], mark: int, matches: bool
) -> None:
    assert bool(ids([limit(1, mark=condition)], header(), mark=mark)) is matches


def test_without_readable_addresses_only_interface_and_mark_count() -> None:
    packet = Header(
        FlowKey(255, bytes(4), bytes(4), 0, 0), 12, 0, False, False, False, Defect.VERSION
    )
    limits = [
        limit(1),
        limit(2, mark=(1, 1)),
        limit(3, protocol=255),
        limit(4, destination=ip_network("0.0.0.0/0")),
        limit(5, destination=ip_network("::/0")),
        limit(6, destination_ports=((0, 65535),)),
    ]
    assert ids(limits, packet, mark=1) == [1, 2]
    assert ids(limits, packet, mark=0) == [1]


def test_ten_thousand_prefixes_are_one_lookup() -> None:
    limits = [
        limit(number, destination=ip_network((0x0A000000 + number * 256, 24)))
        for number in range(1, 10_001)
    ]
    matcher = Matcher(limits)
    (found,) = matcher.classify(header(destination="10.9.2.77"), "eth1", OUT, 0)
    assert found.id == 9 * 256 + 2
    assert len(matcher._out["eth1", 4]) == 1
