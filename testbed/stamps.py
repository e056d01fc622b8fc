"""Records arrival times of packets at an interface without disturbing them: a ring in the kernel.

A packet socket with a ring (TPACKET_V2, packet_mmap) records headers without a running process, to
be read at the end. Unlike other sources of times it does not make the kernel stamp every packet of
the host. The socket comes after the classifiers. It has a packet's own stamp if there is one, else
the wall-clock time at which it saw the packet.
"""

from __future__ import annotations

import mmap
import socket
import struct
from collections.abc import Iterable, Iterator

_SOL_PACKET, _RX_RING, _VERSION, _STATISTICS = 263, 5, 10, 6
_TPACKET_V2 = 1
_FRAME_BYTES, _BLOCK_BYTES = 256, 4096
_HEADER = struct.Struct("=IIIHHII")
"""Fields of struct tpacket2_hdr: status, length, bytes kept, offsets of frame and packet, s, ns."""
_USER = 1
IPV4, ANY = 0x0800, 0x0003
"""Protocols of packets (ETH_P_IP, ETH_P_ALL)."""
_NS_PER_S = 1_000_000_000


class Recorder:
    """A record of packets that arrive at one interface, from now on."""

    def __init__(self, device: str, packets: int, protocol: int = IPV4) -> None:
        """Record at most `packets` packets of a protocol, in the present network namespace.

        `ANY`: also those that leave by the interface, and before the kernel handles them itself.
        """
        blocks = -(-packets * _FRAME_BYTES // _BLOCK_BYTES)
        self._frames = blocks * _BLOCK_BYTES // _FRAME_BYTES
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
        self._socket.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
        ring = struct.pack("=IIII", _BLOCK_BYTES, blocks, _FRAME_BYTES, self._frames)
        self._socket.setsockopt(_SOL_PACKET, _RX_RING, ring)
        self._ring = mmap.mmap(self._socket.fileno(), blocks * _BLOCK_BYTES)
        self._socket.bind((device, protocol))

    def arrivals(self) -> list[tuple[int, int]]:
        """Time, ns, and IP length of each packet."""
        return [(time_ns, length) for time_ns, length, _ in self.packets()]

    def packets(self) -> Iterator[tuple[int, int, bytes]]:
        """Time, ns, IP length, and beginning of each packet, from its IP header on."""
        for frame in range(self._frames):
            at = frame * _FRAME_BYTES
            status, length, kept, _, begin, seconds, ns = _HEADER.unpack_from(self._ring, at)
            if not status & _USER:
                break
            packet = self._ring[at + begin : at + begin + kept]
            yield seconds * _NS_PER_S + ns, length, packet

    def missed(self) -> int:
        """The number of packets that met a full ring."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8)
        return int(struct.unpack("=II", statistics)[1])

    def close(self) -> None:
        """Forget all recorded packets."""
        self._ring.close()
        self._socket.close()


def beyond(arrivals: Iterable[tuple[int, int]], rate: int, depth: int) -> int:
    """The number of packets that a bucket of `rate` bytes/s and `depth` bytes would drop."""
    tokens = full = depth * _NS_PER_S
    updated_ns, refused = 0, 0
    for time_ns, length in sorted(arrivals):
        tokens = min(tokens + rate * (time_ns - updated_ns), full)
        updated_ns = time_ns
        if tokens >= length * _NS_PER_S:
            tokens -= length * _NS_PER_S
        else:
            refused += 1
    return refused
