"""Headers written out by hand; scapy and arbitrary bytes are for property and fuzz tests."""

import struct

import pytest

from drld.capture.packet import MAX_EXTENSIONS, Defect, Header, ecn_capable, marked, parse
from drld.model import FlowKey

A4, B4 = bytes([10, 0, 0, 1]), bytes([10, 9, 2, 1])
A6, B6 = bytes.fromhex("fd01" + "00" * 13 + "01"), bytes.fromhex("fd02" + "00" * 13 + "01")
PORTS = struct.pack("!HH", 1024, 80)
TCP, UDP, ICMP, ESP, NO_NEXT = 6, 17, 1, 50, 59
HOP_BY_HOP, ROUTING, FRAGMENT, AH, DESTINATION = 0, 43, 44, 51, 60


def ipv4(
    rest: bytes, protocol: int = TCP, *, length: int | None = None, ihl: int = 5, fragment: int = 0
) -> bytes:
    options = bytes(max(ihl - 5, 0) * 4)
    total = 20 + len(options) + len(rest) if length is None else length
    first = 0x40 | ihl
    fixed = struct.pack("!BBHHHBBH", first, 0, total, 7, fragment, 64, protocol, 0)
    return fixed + A4 + B4 + options + rest


def ipv6(rest: bytes, protocol: int = TCP, *, payload: int | None = None) -> bytes:
    length = len(rest) if payload is None else payload
    return struct.pack("!IHBB", 6 << 28, length, protocol, 64) + A6 + B6 + rest


def extension(following: int, words: int = 0) -> bytes:
    """Hop-by-hop, routing or destination options header of (words + 1) * 8 bytes, padded."""
    return bytes([following, words, 1, words * 8 + 4]) + bytes(words * 8 + 4)


def fragment_header(following: int, offset: int, more: bool) -> bytes:
    return struct.pack("!BBHI", following, 0, offset << 3 | more, 7)


def flow4(protocol: int, source_port: int = 0, destination_port: int = 0) -> FlowKey:
    return FlowKey(protocol, A4, B4, source_port, destination_port)


def flow6(protocol: int, source_port: int = 0, destination_port: int = 0) -> FlowKey:
    return FlowKey(protocol, A6, B6, source_port, destination_port)


@pytest.mark.parametrize("protocol", [6, 17, 33, 132, 136])
def test_ports_of_every_protocol_that_has_them(protocol: int) -> None:
    assert parse(ipv4(PORTS, protocol, length=1500)) == Header(
        flow4(protocol, 1024, 80), 1500, 4, True, False, False, None
    )
    assert parse(ipv6(PORTS, protocol, payload=1460)) == Header(
        flow6(protocol, 1024, 80), 1500, 6, True, False, False, None
    )


def test_no_field_is_read_beyond_the_packet() -> None:
    for packet, said in (
        (ipv4(PORTS, UDP, length=65535), 65535),
        (ipv6(PORTS, UDP, payload=65495), 65535),
        (jumbo(b"\xc2\x04\x00\x01\x00\x00"), 65576),
    ):
        whole = parse(packet)
        assert (whole.length, whole.defect) == (said, None)
        for present in (len(packet), len(packet) + 1, said - 1, said, said + 1):
            assert parse(packet, present) == whole._replace(length=min(said, present))
    # Where the bytes end inside the ports, they are not there, however many were said to be.
    for packet in (ipv4(PORTS[:3], UDP, length=65535), ipv6(PORTS[:3], UDP, payload=65495)):
        assert parse(packet).defect is Defect.COPY
        cut = parse(packet, len(packet))
        assert (cut.defect, cut.length, cut.ports_known) == (Defect.SHORT, len(packet), False)
    # Nor are those of a header that is longer.
    options = parse(ipv4(PORTS, ihl=15, length=65535)[:24], 24)
    assert (options.defect, options.length) == (Defect.LENGTH, 24)


@pytest.mark.parametrize("protocol", [ICMP, ESP, 47, 58, NO_NEXT, 255])
def test_other_protocols_have_no_ports(protocol: int) -> None:
    assert parse(ipv4(PORTS, protocol)) == Header(flow4(protocol), 24, 4, False, False, False, None)
    assert parse(ipv6(PORTS, protocol)) == Header(flow6(protocol), 44, 6, False, False, False, None)


@pytest.mark.parametrize(
    ("field", "fragment", "later"),
    [
        (0x4000, False, False),  # do not fragment
        (0x2000, True, False),  # first
        (0x20B9, True, True),  # middle
        (0x00B9, True, True),  # last
    ],
)
def test_fragments_of_ipv4_are_recognized(field: int, fragment: bool, later: bool) -> None:
    header = parse(ipv4(PORTS, UDP, fragment=field))
    assert (header.fragment, header.later_fragment, header.defect) == (fragment, later, None)
    assert header.ports_known is not later
    assert header.flow == (flow4(UDP) if later else flow4(UDP, 1024, 80))


@pytest.mark.parametrize(
    ("offset", "more", "fragment", "later"),
    [
        (0, False, False, False),  # atomic: a whole packet
        (0, True, True, False),
        (181, True, True, True),
        (181, False, True, True),
    ],
)
def test_fragments_of_ipv6_are_recognized(
    offset: int, more: bool, fragment: bool, later: bool
) -> None:
    header = parse(ipv6(fragment_header(UDP, offset, more) + PORTS, FRAGMENT))
    assert (header.fragment, header.later_fragment, header.defect) == (fragment, later, None)
    assert header.ports_known is not later
    assert header.flow == (flow6(UDP) if later else flow6(UDP, 1024, 80))


def test_a_later_fragment_ends_the_reading() -> None:
    """The fragment's bytes are payload, even if they look like a destination options header."""
    data = fragment_header(DESTINATION, 100, True) + extension(TCP) + PORTS
    header = parse(ipv6(data, FRAGMENT))
    assert header == Header(flow6(DESTINATION), 60, 6, False, True, True, None)


def test_every_extension_header_is_followed() -> None:
    authentication = bytes([TCP, 4]) + bytes(22)
    rest = (
        extension(DESTINATION)
        + extension(ROUTING, 1)
        + extension(FRAGMENT)
        + fragment_header(DESTINATION, 0, False)
        + extension(AH, 3)
        + authentication
        + PORTS
    )
    header = parse(ipv6(rest, HOP_BY_HOP))
    assert header == Header(flow6(TCP, 1024, 80), 40 + len(rest), 6, True, False, False, None)


@pytest.mark.parametrize("count", [MAX_EXTENSIONS, MAX_EXTENSIONS + 1])
def test_extension_headers_are_followed_up_to_a_bound(count: int) -> None:
    rest = extension(DESTINATION) * (count - 1) + extension(TCP) + PORTS
    header = parse(ipv6(rest, DESTINATION))
    if count == MAX_EXTENSIONS:
        assert (header.flow, header.defect) == (flow6(TCP, 1024, 80), None)
    else:
        assert (header.flow, header.defect) == (flow6(DESTINATION), Defect.EXTENSIONS)
    assert header.length == 40 + len(rest)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00" * 60, b"\x55" * 60, b"\xf0" * 60])
def test_the_length_of_a_packet_without_ip_is_its_size(data: bytes) -> None:
    header = parse(data)
    assert (header.family, header.length, header.defect) == (0, len(data), Defect.VERSION)
    assert header.defect is not None
    assert header.defect.malformed


def test_less_than_a_fixed_header_says_nothing() -> None:
    for data, size in ((ipv4(PORTS), 19), (ipv6(PORTS), 39)):
        header = parse(data[:size])
        assert (header.family, header.length, header.defect) == (0, size, Defect.COPY)
        assert not header.ports_known


@pytest.mark.parametrize(
    ("packet", "protocol", "length", "defect"),
    [
        pytest.param(ipv4(PORTS, ihl=4, length=24), TCP, 24, Defect.HEADER_LENGTH, id="header: 16"),
        pytest.param(ipv4(PORTS, length=0), TCP, 24, Defect.LENGTH, id="packet: 0"),
        pytest.param(ipv4(PORTS, length=19), TCP, 24, Defect.LENGTH, id="packet: 19"),
        pytest.param(
            ipv4(b"", ICMP, ihl=15, length=40), ICMP, 60, Defect.LENGTH, id="40, header: 60"
        ),
    ],
)
def test_an_impossible_ipv4_length_is_replaced_by_the_size(
    packet: bytes, protocol: int, length: int, defect: Defect
) -> None:
    assert parse(packet) == Header(flow4(protocol), length, 4, False, False, False, defect)


@pytest.mark.parametrize("rest", [b"", b"\x04", PORTS[:3]])
def test_a_packet_that_ends_inside_its_ports(rest: bytes) -> None:
    for packet in (ipv4(rest, UDP), ipv6(rest, UDP)):
        header = parse(packet)
        assert header.defect is Defect.SHORT
        assert header.defect.malformed
        assert not header.ports_known
        assert header.length == len(packet)


@pytest.mark.parametrize(
    "rest", [extension(TCP)[:7], extension(TCP, 5)[:8], extension(NO_NEXT, 5)[:8]]
)
def test_a_packet_that_ends_inside_its_extension_headers(rest: bytes) -> None:
    assert parse(ipv6(rest, DESTINATION)).defect is Defect.SHORT


def test_reserved_bits_make_no_fragment() -> None:
    reserved = struct.pack("!BBHI", UDP, 0, 0b110, 7)
    assert not parse(ipv6(reserved + PORTS, FRAGMENT)).fragment


def test_any_cut_inside_the_headers_is_noticed() -> None:
    rest = extension(FRAGMENT) + fragment_header(AH, 0, True) + bytes([TCP, 4]) + bytes(22) + PORTS
    for packet in (ipv4(PORTS, ihl=7), ipv6(rest, DESTINATION)):
        for size in range(1, len(packet)):
            assert parse(packet[:size]).defect is Defect.COPY
        assert parse(packet).defect is None


def test_a_copy_that_ends_inside_the_headers() -> None:
    for packet, size in (
        (ipv4(PORTS, ihl=15), 62),
        (ipv6(extension(TCP) + PORTS, DESTINATION), 47),
        (ipv6(extension(TCP) + PORTS, DESTINATION), 51),
    ):
        header = parse(packet[:size])
        assert header.defect is Defect.COPY
        assert not header.defect.malformed
        assert header.length == len(packet)
        assert not header.ports_known


def jumbo(options: bytes, rest: bytes = PORTS, payload: int = 0) -> bytes:
    words = (len(options) + 2) // 8 - 1
    return ipv6(bytes([TCP, words]) + options + rest, HOP_BY_HOP, payload=payload)


def test_a_jumbogram_has_the_length_of_its_option() -> None:
    option = b"\xc2\x04" + struct.pack("!I", 100_000)
    padded = b"\x00\x01\x02\x00\x00\x00" + option + b"\x01\x00"
    for options in (option, padded):
        header = parse(jumbo(options))
        assert header == Header(flow6(TCP, 1024, 80), 100_040, 6, True, False, False, None)


@pytest.mark.parametrize(
    "options",
    [
        b"\x01\x04" + bytes(4),  # no jumbo option at all
        b"\xc2\x04" + struct.pack("!I", 65_535),  # not that long
        b"\xc2\x04" + struct.pack("!I", 0x80001),  # longer than any packet is
        b"\xc2\x04" + struct.pack("!I", 0xFFFFFFFF),
        b"\xc2\x03" + struct.pack("!I", 100_000),  # option of the wrong length
        b"\x01\xff" + bytes(4),  # an option that is longer than the header
    ],
)
def test_a_missing_length_is_replaced_by_the_size(options: bytes) -> None:
    packet = jumbo(options)
    header = parse(packet)
    assert (header.length, header.defect) == (len(packet), Defect.LENGTH)
    assert header.flow == flow6(HOP_BY_HOP)


def test_the_jumbo_option_counts_only_in_its_header_and_where_there_is_no_other_length() -> None:
    option = b"\xc2\x04" + struct.pack("!I", 100_000)
    assert parse(jumbo(option, payload=12)).length == 52
    assert parse(jumbo(b"\x01\x04" + bytes(4), rest=option)).defect is Defect.LENGTH


def test_an_empty_ipv6_packet_is_forty_bytes_long() -> None:
    header = parse(ipv6(b"", NO_NEXT))
    assert (header.length, header.defect) == (40, None)


def test_mapped_addresses_are_ipv6_addresses() -> None:
    packet = bytearray(ipv6(PORTS))
    packet[8:24] = bytes(10) + b"\xff\xff" + A4
    header = parse(bytes(packet))
    assert (header.family, header.flow.source) == (6, bytes(10) + b"\xff\xff" + A4)


@pytest.mark.parametrize(("ecn", "capable"), [(0, False), (1, True), (2, True), (3, True)])
def test_ecn_capable_packets_are_told_by_two_bits(ecn: int, capable: bool) -> None:
    service = 0b101110_00 | ecn
    assert ecn_capable(bytes([0x45, service])) == capable
    assert ecn_capable(struct.pack("!I", 6 << 28 | service << 20 | 0xFFFFF)) == capable


def test_a_mark_sets_both_bits_and_keeps_the_checksum_right() -> None:
    # The sum of RFC 1071 over this header, with TOS 0xB9 (ECT(1)): 0x2056, and 2 less with CE.
    before = bytes.fromhex("45b905dc 00004000 40112056 0a000001 0a000002")
    assert sum(struct.unpack("!10H", before)) % 0xFFFF == 0
    after = marked(before + PORTS)
    assert after == bytes.fromhex("45bb05dc 00004000 40112054 0a000001 0a000002") + PORTS
    assert marked(after) == after
    six = ipv6(PORTS)
    assert marked(six) == bytes([0x60, 0x30]) + six[2:]
