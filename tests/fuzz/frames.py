"""Ethernet frames that are random, and built as packets are: tags, options, fragments, chains.

`random_frame` takes any `random.Random`, that of Hypothesis (`st.randoms`) too.
"""

from __future__ import annotations

import struct
from random import Random

from .targets.packet import ipv4, ipv6

ETHERNET = bytes.fromhex("020000000102 020000000101")
TAGS = (0x8100, 0x88A8)
IPV4, IPV6 = 0x0800, 0x86DD
LONGEST = 3000
"""Bytes of a frame: what the kernel's test run takes in one page."""
IP_IN_IP, IPV6_IN_IP = 4, 41
_PROTOCOLS = [6, 6, 6, 17, 17, 17, 1, 33, 47, 50, 58, 132, 136, 59, 255, IP_IN_IP, IPV6_IN_IP]
_PORTS = [0, 1, 80, 443, 1000, 65535]
_HOSTS = [bytes([10, 0, 0, 1]), bytes([10, 0, 1, 1]), bytes([10, 1, 0, 1]), bytes([11, 0, 0, 1])]
_HOSTS6 = [prefix + bytes(12) + b"\x01" for prefix in (b"\xfd\0\0", b"\xfd\0\1", b"\xfe\0\0")]
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION = 0, 43, 44, 51, 60
_EXTENSIONS = [_HOP_BY_HOP, _ROUTING, _FRAGMENT, _AUTHENTICATION, _DESTINATION]


def frame(packet: bytes, tags: int = 0) -> bytes:
    """A packet with an Ethernet header and VLAN tags, the outer of two a service tag."""
    ethertype = IPV6 if packet and packet[0] >> 4 == 6 else IPV4
    kinds = [0x88A8, 0x8100][-tags:] if tags else []
    head = b"".join(struct.pack("!HH", kind, 10 + number) for number, kind in enumerate(kinds))
    return ETHERNET + head + struct.pack("!H", ethertype) + packet


def packet_of(data: bytes) -> bytes | None:
    """The IP packet in a frame with two VLAN tags at most; None: the frame has none."""
    offset = 12
    for _ in range(3):
        ethertype = data[offset : offset + 2]
        if len(ethertype) < 2:
            return None
        offset += 2
        if int.from_bytes(ethertype, "big") in (IPV4, IPV6):
            return data[offset:]
        if int.from_bytes(ethertype, "big") not in TAGS:
            return None
        offset += 2
    return None


def random_frame(rng: Random) -> bytes:
    """A frame, whole or not, sound or not."""
    packet = random_packet(rng)
    ethertype = IPV6 if packet and packet[0] >> 4 == 6 else IPV4
    if rng.random() < 0.03:
        ethertype = rng.choice([IPV4, IPV6, 0x0806, 0x8864, 46])
    tags = [rng.choice(TAGS) for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 2, 3]))]
    head = b"".join(struct.pack("!HH", tag, rng.randrange(1 << 16)) for tag in tags)
    data = ETHERNET + head + struct.pack("!H", ethertype) + packet
    if rng.random() < 0.1:
        data += bytes(rng.randrange(64))  # padding
    if rng.random() < 0.15:
        data = data[: rng.randint(14, len(data))]
    return data[:LONGEST]


def random_packet(rng: Random, nested: int = 0) -> bytes:
    """An IP packet; `nested` is how many it is inside of."""
    if rng.random() < 0.5:
        data = bytearray(_random_ipv4(rng, nested))
        lengths = 2
    else:
        data = bytearray(_random_ipv6(rng, nested))
        lengths = 4
    if rng.random() < 0.1:
        wrong = [0, 10, 19, 20, 23, 24, 39, 40, 41, len(data) - 1, len(data) + 1, 65535]
        struct.pack_into("!H", data, lengths, rng.choice(wrong) & 0xFFFF)
    for _ in range(rng.choice([0, 0, 0, 0, 1, 2, 4])):
        data[rng.randrange(len(data))] = rng.choice(
            [0, 1, 0xFF, 0x45, 0x60, 0x46, rng.randrange(256)]
        )
    return bytes(data)


def _random_ipv4(rng: Random, nested: int) -> bytes:
    protocol = rng.choice(_PROTOCOLS)
    options = bytes(rng.randrange(256) for _ in range(4 * rng.choice([0, 0, 0, 1, 2, 10])))
    fragment = rng.choice([0, 0, 0, 0x4000, 0x2000, 0x2001, 1, 0x1FFF])
    data = ipv4(protocol, _payload(rng, protocol, nested), options=options, fragment=fragment)
    return data[:12] + rng.choice(_HOSTS) + rng.choice(_HOSTS) + data[20:]


def _random_ipv6(rng: Random, nested: int) -> bytes:
    protocol = rng.choice(_PROTOCOLS)
    payload = _payload(rng, protocol, nested)
    for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 3, 8, 9])):
        kind = rng.choice(_EXTENSIONS)
        payload = _extension(rng, kind, protocol) + payload
        protocol = kind
    data = ipv6(protocol, payload)
    if protocol == _HOP_BY_HOP and rng.random() < 0.4:
        data = data[:4] + bytes(2) + data[6:]  # a jumbogram, or none
    return data[:8] + rng.choice(_HOSTS6) + rng.choice(_HOSTS6) + data[40:]


def _extension(rng: Random, kind: int, following: int) -> bytes:
    if kind == _FRAGMENT:
        field = rng.choice([0, 0, 1, 8, 9, 0xFFF8, 6])
        return struct.pack("!BBHI", following, rng.choice([0, 0, 7]), field, 7)
    words = rng.choice([0, 0, 1, 2, 3, 30, 255] if rng.random() < 0.2 else [0, 0, 1, 2])
    if kind == _AUTHENTICATION:
        size = (words + 2) * 4
        return (bytes([following, words]) + bytes(size))[: max(size, 8)]
    size = (words + 1) * 8
    body = bytes(size - 2)
    if kind == _HOP_BY_HOP and rng.random() < 0.5:
        jumbo = rng.choice([0, 0xFFFF, 0x10000, 70_000, 0xFFFFFFFF])
        option = b"\xc2" + bytes([rng.choice([4, 4, 4, 3])]) + struct.pack("!I", jumbo)
        padding = bytes(rng.choice([0, 0, 1, 2]))
        body = (padding + rng.choice([b"", b"\x01\x01\x00"]) + option + body)[: size - 2]
    return bytes([following, words]) + body


def _payload(rng: Random, protocol: int, nested: int) -> bytes:
    if protocol in (IP_IN_IP, IPV6_IN_IP) and nested < 2:
        return random_packet(rng, nested + 1)
    ports = struct.pack("!HH", rng.choice(_PORTS), rng.choice(_PORTS))
    return (ports + bytes(rng.choice([0, 4, 16, 300])))[: rng.choice([0, 3, 4, 8, 400, 400, 400])]
