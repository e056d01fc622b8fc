"""Captures: what scapy writes and reads, and what a file may not be."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import IO, Any

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.layers.ppp import PPP
from scapy.packet import Packet, Raw
from scapy.utils import PcapNgWriter, PcapWriter

from drld.capture.trace_file import Captured, packets
from drld.errors import InputError

INNER = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2) / Raw(bytes(9))
INNER.time = 1_700_000_000.25
DATA = bytes(INNER)
TIME_NS = 1_700_000_000_250_000_000


def capture(packet: Packet, link: int = 1, **options: Any) -> bytes:
    written = io.BytesIO()
    packet.time = INNER.time
    PcapWriter(written, linktype=link or 1, **options).write(packet)
    # scapy takes 0 for a link type that is not given.
    return written.getvalue() if link else written.getvalue().replace(b"\1\0\0\0", bytes(4), 1)


def only(data: bytes) -> Captured:
    (found,) = packets(io.BytesIO(data))
    return found


@pytest.mark.parametrize("endianness", ["<", ">"])
@pytest.mark.parametrize("nano", [False, True])
def test_packets_are_read_from_pcap(endianness: str, nano: bool) -> None:
    data = capture(Ether() / INNER, endianness=endianness, nano=nano)
    assert only(data) == (TIME_NS, DATA, len(DATA))


class Trickle(io.BytesIO):
    """A pipe that gives a byte at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size, 1) if size else size)


def test_a_capture_is_read_from_a_pipe() -> None:
    (found,) = packets(Trickle(capture(Ether() / INNER)))
    assert found.data == DATA


@pytest.mark.parametrize(
    ("frame", "link"),
    [
        (INNER, 101),
        (INNER, 228),
        (Raw(b"\x02\x00\x00\x00" + DATA), 0),
        (Raw(bytes(14) + b"\x08\x00" + DATA), 113),
        (Raw(b"\x08\x00" + bytes(18) + DATA), 276),
        (Raw(b"\x81\x00" + bytes(20) + b"\x08\x00" + DATA), 276),
        (PPP(proto=0x21) / INNER, 9),
        (Raw(b"\xff\x03\x00\x21" + DATA), 50),
        (Ether() / Dot1Q(vlan=5) / INNER, 1),
        (Ether(type=0x88A8) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / INNER, 1),
    ],
)
def test_every_link_layer_is_read(frame: Packet, link: int) -> None:
    assert only(capture(frame, link)) == (TIME_NS, DATA, len(DATA))


@pytest.mark.parametrize(
    "frame",
    [Ether() / ARP(), Ether() / Dot1Q() / Dot1Q() / Dot1Q() / INNER, Raw(b"\0" * 13), Raw(b"")],
)
def test_a_frame_without_ip_has_no_data(frame: Packet) -> None:
    assert only(capture(frame)) == (TIME_NS, b"", 0)


def test_a_packet_that_was_cut_off_keeps_its_size() -> None:
    data = bytearray(capture(Ether() / INNER))
    struct.pack_into("<I", data, 24 + 12, 1514)
    assert only(bytes(data)) == (TIME_NS, DATA, 1500)


def test_packets_are_read_from_pcapng(tmp_path: Path) -> None:
    file = tmp_path / "trace.pcapng"
    writer = PcapNgWriter(str(file))
    frames: list[Packet] = [Ether() / INNER, Ether() / ARP()]
    for frame in frames:
        frame.time = INNER.time
        writer.write(frame)
    writer.close()
    with file.open("rb") as stream:
        assert [*packets(stream)] == [(TIME_NS, DATA, len(DATA)), (TIME_NS, b"", 0)]


def block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def section(order: str, *options: bytes) -> bytes:
    head = struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1)
    described = struct.pack(order + "HHI", 101, 0, 0) + b"".join(options)
    return block(order, 0x0A0D0D0A, head) + block(order, 1, described)


def enhanced(order: str, time: int) -> bytes:
    head = struct.pack(order + "IIIII", 0, time >> 32, time & 2**32 - 1, len(DATA), len(DATA))
    return block(order, 6, head + DATA)


def test_sections_of_pcapng_keep_their_own_order_resolution_and_offset() -> None:
    """Options of an interface; a second section in the other order; a block of another kind."""
    nano = struct.pack("<HHBxxx", 9, 1, 9) + struct.pack("<HHq", 14, 8, 100)
    binary = struct.pack(">HHBxxx", 9, 1, 0x80 | 10) + struct.pack(">HH", 0, 0)
    obsolete = struct.pack(">HHIIII", 0, 7, 0, 2048, len(DATA), len(DATA)) + DATA
    data = section("<", nano) + block("<", 5, bytes(8)) + enhanced("<", 5)
    data += section(">", binary) + enhanced(">", 1536) + block(">", 2, obsolete)
    times = [found.time_ns for found in packets(io.BytesIO(data))]
    assert times == [100_000_000_005, 1_500_000_000, 2_000_000_000]


def test_a_capture_that_was_cut_off_is_read_up_to_the_cut() -> None:
    """Wherever a writer was killed; the reader is told."""
    for whole in (capture(Ether() / INNER), section("<") + enhanced("<", 5)):
        double = whole + whole[24 if whole[0] != 0x0A else len(section("<")) :]
        for end in range(len(whole) + 1, len(double)):
            found = packets(io.BytesIO(double[:end]))
            next(found)
            with pytest.raises(InputError, match="the capture ends inside a packet"):
                next(found)
        assert len([*packets(io.BytesIO(whole))]) == 1
        assert len([*packets(io.BytesIO(double))]) == 2


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must be a capture (pcap or pcapng)"),
        (b"GET / HTTP/1.1", "must be a capture (pcap or pcapng)"),
        (capture(INNER)[:20], "the capture ends in its header"),
        (capture(INNER, 105), "the capture has link type 105: must be Ethernet, Linux cooked"),
        (capture(INNER)[:32] + b"\xff" * 8, "the capture is damaged: a packet of 4294967295"),
        (section("<").replace(b"\x4d\x3c", b"\0\0"), "the capture is damaged: a section of no"),
        (section("<") + struct.pack("<II", 6, 8), "the capture is damaged: a block of 8 bytes"),
        (section("<") + block("<", 3, bytes(20)), "the capture has packets without a time"),
        (section("<") + block("<", 6, bytes(4)), "the capture is damaged: a block of type 6"),
        (section("<") + block("<", 1, b""), "the capture is damaged: a block of type 1"),
        (
            section("<", b"\x0e\0\x08\0" + b"\xff" * 7 + b"\x7f") + enhanced("<", 5),
            "the capture is damaged: a time of ",
        ),
        (
            section("<", b"\x0e\0\x08\0" + bytes(7) + b"\x80") + enhanced("<", 5),
            "the capture is damaged: a time of -",
        ),
        (block("<", 0x0A0D0D0A, section("<")[8:24]) + enhanced("<", 0), "the capture is damaged"),
        (
            section("<") + block("<", 6, struct.pack("<IIIII", 0, 0, 0, 99, 99)),
            "the capture is damaged: a packet is longer than its block",
        ),
    ],
)
def test_captures_that_cannot_be_read_are_refused(data: bytes, message: str) -> None:
    stream: IO[bytes] = io.BytesIO(data)
    with pytest.raises(InputError) as caught:
        [*packets(stream)]
    assert str(caught.value).startswith(message)
