"""The netlink messages of NFQUEUE that the delay line uses. Pure.

nfnetlink_queue.h: a message is nlmsghdr (host order), nfgenmsg (its queue number big-endian) and
attributes (header in host order, values big-endian). The libraries lack features that the delay
line needs: one verdict for many packets, several messages a system call, metadata without payload,
and arrival times as integers.
"""

from __future__ import annotations

import struct
import sys
from typing import NamedTuple

NETLINK_NETFILTER = 12

_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG, _VERDICT_BATCH = (_SUBSYSTEM | kind for kind in range(4))
_NLMSG_ERROR = 2
_NLM_F_REQUEST, _NLM_F_ACK = 1, 4

_ATTRIBUTE_PACKET_HEADER, _ATTRIBUTE_VERDICT, _ATTRIBUTE_TIMESTAMP = 1, 2, 4
_CONFIG_COMMAND, _CONFIG_PARAMETERS, _CONFIG_MAX_LENGTH, _CONFIG_MASK, _CONFIG_FLAGS = range(1, 6)
_COMMAND_BIND = 1
_COPY_META = 1
_GSO = 4
"""Flag: super-packets come whole, not as segments."""
_NF_DROP, _NF_ACCEPT = 0, 1

_NLMSGHDR = struct.Struct("=IHHII")
_HEADER = struct.Struct("=IHHIIBBH")
_ATTRIBUTE = struct.Struct("=HH")
_ATTRIBUTE_TYPE_MASK = 0x3FFF
_U32 = struct.Struct(">I")
_TIMESTAMP = struct.Struct(">QQ")
_VERDICT_ATTRIBUTE = struct.Struct(">II")
_HEADER_SIZE = 20


class Packet(NamedTuple):
    """Metadata of a packet that waits for its verdict."""

    queue: int
    id: int
    stamp_ns: int | None
    """Arrival at the host, ns of the real-time clock; None if the kernel has no stamp."""


class Failure(NamedTuple):
    """The kernel's answer to a message: 0 or an errno."""

    errno: int


def _swap16(value: int) -> int:
    return int.from_bytes(value.to_bytes(2, "big"), sys.byteorder)


def _message(kind: int, queue: int, attributes: bytes, flags: int = 0) -> bytes:
    return (
        _HEADER.pack(
            _HEADER_SIZE + len(attributes), kind, _NLM_F_REQUEST | flags, 0, 0, 0, 0, _swap16(queue)
        )
        + attributes
    )


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def bind(queue: int, max_length: int) -> list[bytes]:
    """Messages that take a queue of at most `max_length` packets; each is acknowledged."""
    command = _attribute(_CONFIG_COMMAND, struct.pack(">BBH", _COMMAND_BIND, 0, 0))
    parameters = _attribute(_CONFIG_PARAMETERS, struct.pack(">IB", 0, _COPY_META))
    length = _attribute(_CONFIG_MAX_LENGTH, _U32.pack(max_length))
    whole = _attribute(_CONFIG_FLAGS, _U32.pack(_GSO)) + _attribute(_CONFIG_MASK, _U32.pack(_GSO))
    return [
        _message(_CONFIG, queue, command, _NLM_F_ACK),
        _message(_CONFIG, queue, parameters + length + whole, _NLM_F_ACK),
    ]


def accept_through(queue: int, packet: int) -> bytes:
    """Accept every waiting packet of the queue up to this id."""
    value = _VERDICT_ATTRIBUTE.pack(_NF_ACCEPT, packet)
    return _message(_VERDICT_BATCH, queue, _attribute(_ATTRIBUTE_VERDICT, value))


def drop(queue: int, packet: int) -> bytes:
    """Drop one packet."""
    value = _VERDICT_ATTRIBUTE.pack(_NF_DROP, packet)
    return _message(_VERDICT, queue, _attribute(_ATTRIBUTE_VERDICT, value))


def parse(buffer: bytearray, size: int) -> Packet | Failure:
    """Read one datagram of the kernel: a packet, or the outcome of a message.

    Raises:
        ValueError: the datagram is neither.
    """
    length, kind, _flags, _sequence, _port = _NLMSGHDR.unpack_from(buffer)
    if kind == _NLMSG_ERROR:
        return Failure(-struct.unpack_from("=i", buffer, _NLMSGHDR.size)[0])
    if kind != _PACKET or length > size:
        raise ValueError(f"unexpected netlink message of type {kind:#x}, {length} bytes of {size}")
    queue: int = struct.unpack_from(">H", buffer, _HEADER_SIZE - 2)[0]
    packet: int | None = None
    stamp_ns: int | None = None
    offset = _HEADER_SIZE
    while offset < length:
        attribute_size, attribute = _ATTRIBUTE.unpack_from(buffer, offset)
        attribute &= _ATTRIBUTE_TYPE_MASK
        if attribute == _ATTRIBUTE_PACKET_HEADER:
            packet = _U32.unpack_from(buffer, offset + 4)[0]
        elif attribute == _ATTRIBUTE_TIMESTAMP:
            seconds, microseconds = _TIMESTAMP.unpack_from(buffer, offset + 4)
            stamp_ns = seconds * 1_000_000_000 + microseconds * 1_000
            break  # the packet header comes before it
        offset += (attribute_size + 3) & ~3
    if packet is None:
        raise ValueError("a queued packet without an id")
    return Packet(queue, packet, stamp_ns)
