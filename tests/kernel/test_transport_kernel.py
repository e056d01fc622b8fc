"""Updates as the kernel puts them on a link.

  left                       right
+----------+  10.93.1.0/24  +----------+
|   l0 .1 ------------------ .2 r0     |   captured at r0
+----------+  fd93:1::/64   +----------+
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from drld.gossip.fabrics.pushsum import PushSum, PushsumMembership
from drld.gossip.fabrics.pushsum_update import PUSHSUM, PushsumUpdate
from drld.gossip.transport import Address, Transport
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.session import Met
from drld.gossip.wire.update_codec import MAX_UPDATES, size
from drld.model import Quantity
from testbed.netns import run, within

from ..wire import pushsum, taken

ETH_P_ALL, PACKET_OUTGOING = 3, 4
DEADLINE_S = 10.0
LEFT, RIGHT = (f"drldt-{os.getpid()}-{side}" for side in ("gossipl", "gossipr"))
PORT = 7946
RING = KeyRing({1: b"sixteen bytes it"}, use=1)


@pytest.fixture(scope="session")
def link() -> Iterator[None]:
    """The two namespaces and the link between them."""
    try:
        for name in (LEFT, RIGHT):
            run(["ip", "netns", "add", name])
        run(["ip", "-n", LEFT, *f"link add l0 type veth peer name r0 netns {RIGHT}".split()])
        for name, device, host in ((LEFT, "l0", 1), (RIGHT, "r0", 2)):
            commands = f"""
                link set lo up
                link set {device} addrgenmode none
                addr add 10.93.1.{host}/24 dev {device}
                addr add fd93:1::{host}/64 dev {device} nodad
                link set {device} up
            """
            run(["ip", "-n", name, "-batch", "-"], stdin=commands)
        yield
    finally:
        for name in (LEFT, RIGHT):
            run(["ip", "netns", "delete", name], check=False)


def transport(side: str, me: str, listen: Address, peer: str, address: Address) -> Transport:
    return within(side, lambda: Transport(listen, me, {peer: address}, RING))


@pytest.fixture
def capture(link: None) -> Iterator[socket.socket]:
    """Gives the IP packets that cross the link."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        made.bind(("r0", ETH_P_ALL))
        return made

    with within(RIGHT, make) as made:
        yield made


def datagrams(capture: socket.socket, count: int) -> list[bytes]:
    """The next `count` IP packets that carry UDP to the gossip port."""
    packets: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(packets) < count:
        ready, _, _ = select.select([capture], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"only {len(packets)} of {count} packets"
        packet, origin = capture.recvfrom(65536)
        header = 20 if packet[0] >> 4 == 4 else 40
        protocol = packet[9] if header == 20 else packet[6]
        port = int.from_bytes(packet[header + 2 : header + 4], "big")
        if origin[2] != PACKET_OUTGOING and (protocol, port) == (socket.IPPROTO_UDP, PORT):
            packets.append(packet)
    return packets


def received(receiver: Transport, count: int) -> list[tuple[str, Any]]:
    """The next messages, captured on the way in: the socket has them in a moment."""
    got: list[tuple[str, Any]] = []
    while len(got) < count:
        ready, _, _ = select.select([receiver._socket], [], [], DEADLINE_S)
        assert ready
        got += taken(receiver)
    return got


def meet(left: Transport, right: Transport, capture: socket.socket) -> None:
    """Let them have a session."""
    left.send("right", PUSHSUM.kind, updates(1))
    datagrams(capture, 1)
    while not left.met:
        ready, _, _ = select.select([right._socket], [], [], DEADLINE_S)
        assert ready
        assert taken(right) == []
        ready, _, _ = select.select([left._socket], [], [], DEADLINE_S)
        assert ready
        taken(left)
    datagrams(capture, 1)
    assert received(right, 1) == [("left", Met(left.life))]
    left.bytes_sent = 0


def ip_length(packet: bytes) -> int:
    """The length in the IP header; IPv6 does not count the header itself."""
    if packet[0] >> 4 == 4:
        return int.from_bytes(packet[2:4], "big")
    return 40 + int.from_bytes(packet[4:6], "big")


def updates(count: int) -> list[PushsumUpdate]:
    """The packets that a limiter sends in some intervals."""
    membership = PushsumMembership("left", ["right"], 3, 50_000_000)
    fabric = PushSum(membership=membership, limit_id=1, quantity=Quantity.RATE)
    fabric.receive("right", pushsum(1, 0, 1.0, 0.5), 0)
    return [fabric.publish(1e9, ["right"], 0)[0][1] for _ in range(count)]


@pytest.mark.parametrize(
    ("left", "right", "length"), [("10.93.1.1", "10.93.1.2", 48), ("fd93:1::1", "fd93:1::2", 68)]
)
def test_an_update_is_one_packet_of_the_papers_size(
    capture: socket.socket, left: str, right: str, length: int
) -> None:
    sender = transport(LEFT, "left", (left, PORT), "right", (right, PORT))
    receiver = transport(RIGHT, "right", (right, PORT), "left", (left, PORT))
    sent = updates(5)
    try:
        meet(sender, receiver, capture)
        for update in sent:
            sender.send("right", PUSHSUM.kind, [update])
        packets = datagrams(capture, len(sent))
        assert [len(packet) for packet in packets] == [length] * len(sent)
        for packet, update in zip(packets, sent, strict=True):
            assert ip_length(packet) == length
            payload = packet[length - 20 :]
            assert PUSHSUM.decode_untrusted(payload[:-4]) == [update]
            assert payload[1] >> 6 == RING.use
        assert sender.bytes_sent == sum(map(len, packets))
        assert received(receiver, len(sent)) == [("left", update) for update in sent]
        assert not receiver.rejected
    finally:
        sender.close()
        receiver.close()


def test_a_lost_route_is_counted_and_survived(capture: socket.socket) -> None:
    sender = transport(LEFT, "left", ("10.93.1.1", PORT), "right", ("10.93.1.2", PORT))
    receiver = transport(RIGHT, "right", ("10.93.1.2", PORT), "left", ("10.93.1.1", PORT))
    try:
        meet(sender, receiver, capture)
        run(["ip", "-n", LEFT, "link", "set", "l0", "down"])
        sender.send("right", PUSHSUM.kind, updates(1))
        assert sender.errors == {"ENETUNREACH": 1}
        assert sender.sent == 0
        run(["ip", "-n", LEFT, "link", "set", "l0", "up"])
        sender.send("right", PUSHSUM.kind, updates(1))
        assert len(datagrams(capture, 1)[0]) == 48
        assert sender.sent == 1
    finally:
        run(["ip", "-n", LEFT, "link", "set", "l0", "up"])
        sender.close()
        receiver.close()


def test_updates_of_several_limits_share_a_datagram(capture: socket.socket) -> None:
    sender = transport(LEFT, "left", ("10.93.1.1", PORT), "right", ("10.93.1.2", PORT))
    receiver = transport(RIGHT, "right", ("10.93.1.2", PORT), "left", ("10.93.1.1", PORT))
    sent = [pushsum(limit_id, 0, float(limit_id), 1.0) for limit_id in range(1, MAX_UPDATES + 1)]
    try:
        meet(sender, receiver, capture)
        sender.send("right", PUSHSUM.kind, sent)
        (packet,) = datagrams(capture, 1)
        assert sender.bytes_sent == len(packet) == 28 + size(MAX_UPDATES)
        assert received(receiver, len(sent)) == [("left", update) for update in sent]
        assert (sender.sent, receiver.received) == (len(sent), len(sent))
    finally:
        sender.close()
        receiver.close()
