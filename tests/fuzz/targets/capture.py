"""Captures: any file is read to its end or refused, and no packet is more than the file has."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable

from drld.capture.trace_file import packets
from drld.errors import InputError
from tests.fuzz.targets.base import Target
from tests.fuzz.targets.packet import packets as sound_packets


def check(data: bytes) -> bool:
    """Whatever is in there."""
    there = 0
    try:
        for found in packets(io.BytesIO(data)):
            there += max(len(found.data), 1)
            assert len(found.data) <= found.size
            assert there <= len(data)
    except InputError:
        return False
    return True


def pcap(order: str, magic: int, link: int, frames: Iterable[bytes]) -> bytes:
    """A file of libpcap's format."""
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for number, frame in enumerate(frames):
        data += struct.pack(order + "IIII", number, number, len(frame), len(frame)) + frame
    return data


def pcapng(order: str, link: int, frames: Iterable[bytes]) -> bytes:
    """A file of one section and one interface."""
    data = _block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    data += _block(order, 1, struct.pack(order + "HHI", link, 0, 0))
    for number, frame in enumerate(frames):
        head = struct.pack(order + "IIIII", 0, 0, number, len(frame), len(frame))
        data += _block(order, 6, head + frame)
    return data


def _block(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def seeds() -> Iterable[bytes]:
    """Each format in each order, with raw packets."""
    frames = [bytes(packet) for packet in sound_packets()][:3]
    for order in "<>":
        yield pcap(order, 0xA1B2C3D4, 101, frames)
        yield pcapng(order, 101, frames)


TARGET = Target(check, seeds)
