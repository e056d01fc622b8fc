"""Packets as operators write them."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture.criteria import remarks
from drld.capture.notation import Packet, read
from drld.capture.packet import PORT_PROTOCOLS, Defect
from drld.errors import InputError
from drld.model import FlowKey
from drld.police.direction import Direction

from ..fuzz.frames import packet_of, random_frame

TCP = bytes.fromhex("450005dc000000004006000 00a0000010a09020304d20050".replace(" ", ""))


def test_a_packet_has_all_words_of_the_notation() -> None:
    packet = read("TCP 10.0.0.1:1234 > 10.9.2.3:80 out eth1 in eth0 size 0x640 mark 0x10 ecn")
    flow = FlowKey(6, bytes([10, 0, 0, 1]), bytes([10, 9, 2, 3]), 1234, 80)
    assert packet.header.flow == flow
    assert (packet.header.length, packet.header.ports_known, packet.capable) == (1600, True, True)
    assert packet.crosses == ((Direction.IN, "eth0"), (Direction.OUT, "eth1"))
    assert packet.mark == 16


def test_bytes_are_parsed_as_the_datapaths_do() -> None:
    packet = read(f"{TCP[:10].hex()} 0x{TCP[10:].hex()}".replace("0x", "") + " out eth1 size 9000")
    assert str(packet) == "tcp 10.0.0.1:1234 > 10.9.2.3:80 out eth1 size 1500"
    assert read(TCP.hex()).header.length == 1500
    assert read("0x" + TCP.hex()) == read(TCP.hex())
    assert str(read("00 out eth1")) == "an unreadable packet out eth1 size 1"


@st.composite
def written(draw: st.DrawFn) -> Packet:
    family = draw(st.sampled_from([4, 6]))
    addresses = st.ip_addresses(v=4 if family == 4 else 6)
    source, destination = draw(addresses), draw(addresses)
    protocol, later = draw(st.integers(0, 255)), draw(st.booleans())
    ported = protocol in PORT_PROTOCOLS and not later
    ports = draw(st.tuples(*[st.integers(0, 65535)] * 2)) if ported else (0, 0)
    header = read("icmp 10.0.0.1 > 10.0.0.2").header._replace(
        flow=FlowKey(protocol, source.packed, destination.packed, *ports),
        length=draw(st.integers(0, 1 << 20)),
        family=family,
        ports_known=ported,
        fragment=later,
        later_fragment=later,
    )
    hooks = [(way, "eth0") for way in Direction if draw(st.booleans())]
    return Packet(header, draw(st.booleans()), draw(st.integers(0, 2**32 - 1)), tuple(hooks))


@given(written())
def test_a_packet_is_read_as_it_is_written(packet: Packet) -> None:
    assert read(str(packet)) == packet


@given(st.randoms(use_true_random=False))
def test_a_sound_packet_is_the_same_in_words_and_in_bytes(rng: object) -> None:
    data = packet_of(random_frame(rng))  # type: ignore[arg-type]  # a Random
    if data:
        header = read(data.hex()).header
        if header.defect is None and header.later_fragment == header.fragment:
            assert read(str(read(data.hex()))).header == header


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "packet: must be one such as"),
        ("tcp", "packet: must be one such as"),
        ("tcp 10.0.0.1:1 > ", "packet: must be one such as"),
        ("tcp 10.0.0.1:1 > 10.0.0.2:2 size", "size: must have a value"),
        ("tcp 10.0.0.1:1 > 10.0.0.2:2 out a out b", "packet: must have each of in, out"),
        ("tcp 10.0.0.1:1 > 10.0.0.2:2 size many", "size: must be a number from 0 to"),
        ("tcp 10.0.0.1:1 > 10.0.0.2:2 mark -1", "mark: must be a number from 0 to 4294967295"),
        ("tcp 10.0.0.1 > 10.0.0.2:2", "source: must be an address and a port"),
        ("tcp 10.0.0.1:1 > 10.0.0.2:99999", "destination: must be an address and a port"),
        ("tcp 10.0.0.1:1 > 10.0.0.2:2 fragment", "source: must be an address without a port"),
        ("icmp 10.0.0.1:1 > 10.0.0.2:2", "source: must be an address without a port"),
        ("icmp 10.0.0.1 > fd00::1", "destination: must be of the source's family"),
        ("256 10.0.0.1 > 10.0.0.2", "protocol: must be a number from 0 to 255, or one of"),
        ("4500 ecn", "ecn: must be left out behind the bytes of a packet"),
        ("4500 size 1", "size: must be at least the 2 bytes given (got 1)"),
    ],
)
def test_each_mistake_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert str(caught.value).startswith(message)


@given(st.text(alphabet="tcp >10.:[]fd inouteth size mark 0x", max_size=60) | st.text())
def test_any_text_is_a_packet_or_a_mistake(text: str) -> None:
    try:
        packet = read(text)
    except InputError:
        return
    assert str(packet)
    assert ip_address(packet.header.flow.source)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("udp 10.0.0.1:1 > 10.0.0.2:4789", "What the tunnel (VXLAN) carries is not read"),
        ("esp fd00::1 > fd00::2", "What the tunnel (ESP) carries is not read"),
        ("tcp 10.0.0.1 > 10.0.0.2 fragment", "It is a later fragment: it has no ports"),
        (TCP[:22].hex() + " size 1500", f"It counts as truncated: {Defect.COPY.value}."),
        ("45", f"It counts as truncated: {Defect.COPY.value}."),
        ("15" * 20, f"It counts as malformed: {Defect.VERSION.value}."),
        (TCP.replace(b"\x00\x00\x40\x06", b"\x20\x00\x40\x06").hex(), "It is a first fragment"),
    ],
)
def test_a_packet_that_is_not_plain_has_a_remark(text: str, said: str) -> None:
    (remark,) = remarks(read(text))
    assert remark.startswith(said)


def test_a_plain_packet_has_no_remarks() -> None:
    assert remarks(read(TCP.hex())) == []
