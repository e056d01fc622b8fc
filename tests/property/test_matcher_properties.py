"""The matcher against the plainest reading of docs/matching.md: every limit, one by one."""

from __future__ import annotations

from fnmatch import fnmatchcase
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st

from drld.capture.criteria import first_miss
from drld.capture.matcher import Matcher
from drld.capture.notation import Packet
from drld.capture.packet import Header
from drld.capture.spec import Match, match_of
from drld.model import FlowKey
from drld.police.direction import Direction
from drld.spec import LimitSpec

from ..factories import limit_spec

Network = IPv4Network | IPv6Network

# Few values each, so that most packets meet several limits and just miss others.
INTERFACES = st.sampled_from(["eth0", "eth1"])
NAMES = INTERFACES | st.sampled_from(["eth*", "eth1*", "e*", "veth*"])
DIRECTIONS = st.sampled_from(Direction)
PROTOCOLS = st.sampled_from([0, 1, 6, 17, 134, 255])
PORTS = st.sampled_from([0, 1, 79, 80, 81, 65535])
MARKS = st.sampled_from([0, 1, 0x10, 0x11, 0xFFFFFFFF])
ADDRESSES = {
    4: st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.1.1", "255.255.255.255"]),
    6: st.sampled_from(["::", "::ffff:10.0.0.1", "fd00::1", "fd00::2", "fd00:0:0:1::1"]),
}
LENGTHS = {4: (0, 1, 8, 24, 31, 32), 6: (0, 1, 7, 64, 127, 128)}


@st.composite
def networks(draw: st.DrawFn) -> Network:
    family = draw(st.sampled_from([4, 6]))
    length = draw(st.sampled_from(LENGTHS[family]))
    return ip_network(f"{draw(ADDRESSES[family])}/{length}", strict=False)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    pairs = draw(st.lists(st.tuples(PORTS, PORTS), max_size=2))
    return tuple((min(pair), max(pair)) for pair in pairs)


MATCHES = st.builds(
    Match,
    interface=NAMES,
    direction=DIRECTIONS,
    source=st.none() | networks(),
    destination=st.none() | networks(),
    protocol=st.none() | PROTOCOLS,
    source_ports=ranges(),
    destination_ports=ranges(),
    mark=st.none() | st.tuples(MARKS, MARKS),
)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    family = draw(st.sampled_from([0, 4, 4, 6, 6]))
    source, destination = (
        ip_address(draw(ADDRESSES[family])).packed if family else bytes(4) for _ in range(2)
    )
    ports_known = family != 0 and draw(st.booleans())
    ports = (draw(PORTS), draw(PORTS)) if ports_known else (0, 0)
    flow = FlowKey(draw(PROTOCOLS) if family else 255, source, destination, *ports)
    return Header(flow, 100, family, ports_known, False, False, None)


def holds(match: Match, header: Header, interface: str, direction: Direction, mark: int) -> bool:
    """Every condition of a limit, one by one."""
    flow = header.flow
    for prefix, packed in ((match.source, flow.source), (match.destination, flow.destination)):
        if prefix is not None and (header.family == 0 or ip_address(packed) not in prefix):
            return False
    if match.protocol is not None and (header.family == 0 or flow.protocol != match.protocol):
        return False
    for wanted, port in (
        (match.source_ports, flow.source_port),
        (match.destination_ports, flow.destination_port),
    ):
        if wanted and not (header.ports_known and any(low <= port <= high for low, high in wanted)):
            return False
    if match.mark is not None and mark & match.mark[1] != match.mark[0]:
        return False
    return fnmatchcase(interface, match.interface) and match.direction is direction


@given(match=MATCHES, header=headers(), crossed=st.tuples(DIRECTIONS, INTERFACES), mark=MARKS)
def test_a_first_miss_is_named_just_where_the_matcher_finds_none(
    match: Match, header: Header, crossed: tuple[Direction, str], mark: int
) -> None:
    found = Matcher(limits([match])).classify(header, crossed[1], crossed[0], mark)
    packet = Packet(header, False, mark, (crossed,))
    assert (first_miss(match, packet) is None) == bool(found)
    # A packet that is said to cross nothing crosses whatever the limit names.
    here = (match.direction, match.interface)
    at_hook = first_miss(match, packet._replace(crosses=(here,)))
    assert first_miss(match, packet._replace(crosses=())) == at_hook


def limits(matches: list[Match]) -> list[LimitSpec]:
    return [limit_spec(id=number, match=match) for number, match in enumerate(matches, 1)]


@given(
    matches=st.lists(MATCHES, max_size=20),
    header=headers(),
    interface=INTERFACES,
    direction=DIRECTIONS,
    mark=MARKS,
)
def test_the_matcher_agrees_with_a_linear_search(
    matches: list[Match], header: Header, interface: str, direction: Direction, mark: int
) -> None:
    specs = limits(matches)
    found = Matcher(specs).classify(header, interface, direction, mark)
    expected = [spec for spec in specs if holds(match_of(spec), header, interface, direction, mark)]
    assert list(found) == expected


@given(match=MATCHES, header=headers(), mark=MARKS)
def test_a_limit_on_its_own_hook_matches_as_the_document_says(
    match: Match, header: Header, mark: int
) -> None:
    """The packet is always at the limit's hook, so that matching is common."""
    (spec,) = limits([match])
    interface = match.interface.rstrip("*")
    found = Matcher([spec]).classify(header, interface, match.direction, mark)
    assert bool(found) is holds(match, header, interface, match.direction, mark)
