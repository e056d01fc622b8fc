"""Arrival times of the nfqueue datapath: who is charged for what, and that nobody else notices."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyroute2 import IPRoute
from scapy.layers.inet import IP, UDP

from drld.capture.bpf import Code, Program
from drld.capture.bpf_compiler import compiled
from drld.capture.rules import Hook, Point, nft_install
from drld.errors import DatapathError
from drld.model import NS_PER_S, Enforcement
from drld.spec import Direction, LimitSpec

from .attached import tcx_programs
from .remote import RemoteNfqueueDatapath
from .test_nfqueue_kernel import SINK, SOURCE, limit, our_rules, queues, send_udp, went_wrong
from .topology import Topology, wait_for

pytestmark = pytest.mark.kernel

Start = Callable[..., RemoteNfqueueDatapath]

PACKETS = 12
LENGTH = {4: 128, 6: 148}
"""Bytes of a packet that `send_udp` sends."""
GAP_NS = 2_000_000
SO_TIMESTAMPNS, IP_TRANSPARENT = 35, 19

both_families = pytest.mark.parametrize("family", [4, 6])
both_directions = pytest.mark.parametrize("interface", ["in0", "out0"])
both_stamps = pytest.mark.parametrize("source", ["ebpf", "kernel"])


def one_packet_a_gap(length: int) -> Enforcement:
    """A bucket that holds one packet, and fills in the time between two of them."""
    return Enforcement(fill_rate=length * 1_000_000_000 // GAP_NS, depth=length)


def queued(topology: Topology, packets: int) -> int:
    """How many packets wait in the queue, once there are so many."""

    def look() -> int:
        listed = topology.run("limiter", "cat", "/proc/net/netfilter/nfnetlink_queue")
        return int(listed.split()[2])

    return wait_for(look, lambda waiting: waiting >= packets)


def send_apart(topology: Topology, family: int, packets: int = PACKETS) -> None:
    """Have packets arrive, each more than a gap after the one before was in the queue."""
    pause = select.poll()
    for number in range(packets):
        due_ns = time.monotonic_ns() + 2 * GAP_NS
        while time.monotonic_ns() < due_ns:
            pause.poll(1)
        send_udp(topology, SINK[family], 1)
        assert queued(topology, number + 1) == number + 1


def charged(datapath: RemoteNfqueueDatapath, source: str = "ebpf") -> tuple[int, int]:
    """Packets charged when they arrived, and when they were read.

    As soon as any socket of the host wants timestamps, the kernel stamps, and our program leaves
    its stamps alone.
    """
    counters = datapath.counters()
    assert source == "ebpf" or not counters["stamped_ebpf"]
    return counters["stamped_ebpf"] + counters["stamped_kernel"], counters["unstamped"]


def filters(topology: Topology) -> list[str]:
    """Classifiers and their hooks in the limiter's namespace, whoever's they are."""
    return [
        line
        for device in topology.run("limiter", "ls", "/sys/class/net").split()
        for kind in (["qdisc", "show"], ["filter", "show"])
        for line in topology.run(
            "limiter", "tc", *kind, "dev", device, *(["ingress"] if kind[0] == "filter" else [])
        ).splitlines()
        if "clsact" in line or "drld" in line
    ] + [" ".join(program) for program in tcx_programs(topology)]


# Charged at arrival


@both_families
@both_directions
@both_stamps
def test_packets_that_arrived_apart_pass_though_they_are_read_at_once(
    topology: Topology, start: Start, source: str, interface: str, family: int
) -> None:
    record = one_packet_a_gap(LENGTH[family])
    datapath = start(timestamps=source)
    datapath.attach((limit(1, interface, SINK[family]), record))
    datapath.pause()
    send_apart(topology, family)
    datapath.freeze()
    # A tick that comes before the reading settles no bucket behind the packets' backs.
    datapath.program(1, record)
    datapath.flush()
    assert datapath.drain() == PACKETS
    total = datapath.total(1)
    assert (total.forwarded_packets, total.dropped_packets) == (PACKETS, 0)
    assert charged(datapath, source) == (PACKETS, 0)
    assert went_wrong(datapath) == {}


@both_directions
def test_read_at_once_they_are_a_burst(topology: Topology, start: Start, interface: str) -> None:
    datapath = start(timestamps="read")
    datapath.attach((limit(1, interface, SINK[4]), one_packet_a_gap(LENGTH[4])))
    datapath.pause()
    send_apart(topology, 4)
    datapath.freeze()
    assert datapath.drain() == PACKETS
    total = datapath.total(1)
    assert (total.forwarded_packets, total.dropped_packets) == (1, PACKETS - 1)
    assert datapath.counters()["unstamped"] == PACKETS
    assert "when read" in datapath.reason()


@both_stamps
def test_a_burst_is_a_burst_whenever_it_is_read(
    topology: Topology, start: Start, source: str
) -> None:
    """Stamps give a stream no more than its bucket: what arrives at once is dropped."""
    datapath = start(timestamps=source)
    datapath.attach((limit(1, "out0", SINK[4]), Enforcement(fill_rate=1, depth=3 * LENGTH[4])))
    datapath.pause()
    send_udp(topology, SINK[4], PACKETS)
    assert queued(topology, PACKETS) == PACKETS
    datapath.drain()
    assert datapath.total(1).forwarded_packets == 3


@both_stamps
def test_a_tcp_stream_is_stamped_segment_by_segment(
    topology: Topology, start: Start, source: str
) -> None:
    """Its packets bear a departure time when they come, and travel in super-packets."""
    datapath = start(timestamps=source)
    datapath.attach((limit(1, "out0", SINK[4]), Enforcement()))
    size = 300_000

    def listen() -> socket.socket:
        return socket.create_server((SINK[4], 9001))

    def connect() -> socket.socket:
        return socket.create_connection((SINK[4], 9001), timeout=30)

    with topology.within("sink", listen) as server, topology.within("source", connect) as client:
        client.sendall(bytes(size))
        client.shutdown(socket.SHUT_WR)
        accepted, _ = server.accept()
        with accepted:
            received = 0
            while data := accepted.recv(1 << 16):
                received += len(data)
    assert received == size
    total = datapath.wait(1, 1 + size // 1460)
    assert charged(datapath, source) == (total.arrived_packets, 0)


# Every packet once, wherever it comes from


def send_local(topology: Topology, packets: int, *, source: str | None = None) -> None:
    """Send from the limiter itself; as a transparent proxy does, from an address not its own."""

    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if source is not None:
            made.setsockopt(socket.IPPROTO_IP, IP_TRANSPARENT, 1)
            made.bind((source, 7))
        return made

    with topology.within("limiter", make) as sender:
        for _ in range(packets):
            sender.sendto(bytes(100), (SINK[4], 9000))


@both_stamps
def test_forwarded_and_own_packets_are_counted_once(
    topology: Topology, start: Start, source: str
) -> None:
    datapath = start(timestamps=source)
    datapath.attach((limit(1, "out0", SINK[4]), Enforcement()), (limit(2, "in0"), Enforcement()))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 3)
        send_local(topology, 4)
        send_local(topology, 5, source="192.0.2.9")
        assert len(capture.wait(12)) == 12
    assert datapath.total(1).arrived_packets == 12
    assert datapath.total(2).arrived_packets == 3
    assert charged(datapath, source) == (6, 9)


def test_nobody_is_charged_for_what_the_firewall_refuses(topology: Topology, start: Start) -> None:
    refusal = ["FORWARD", "-p", "udp", "--dport", "7000", "-j", "DROP"]
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), Enforcement()))
    topology.run("limiter", "iptables", "-A", *refusal)
    try:
        send_udp(topology, SINK[4], 3, port=7000)
        send_udp(topology, SINK[4], 2, port=7001)
        assert datapath.wait(1, 2).arrived_packets == 2
    finally:
        topology.run("limiter", "iptables", "-D", *refusal)


def test_a_reload_keeps_every_packet_limited_once(topology: Topology, start: Start) -> None:
    """A hook that gets a limit by mark goes back to its one rule, and forward again."""
    datapath = start()
    plain = limit(1, "out0", SINK[4])
    datapath.attach((plain, Enforcement()))
    stamped = our_rules(topology)
    send_udp(topology, SINK[4], 2)
    datapath.wait(1, 2)
    datapath.attach((plain, Enforcement()), (limit(2, "out0", mark=(1, 1)), Enforcement()))
    assert "those out on out0 when read" in datapath.reason()
    send_udp(topology, SINK[4], 2)
    datapath.wait(1, 4)
    datapath.attach((plain, Enforcement()))
    assert sorted(our_rules(topology)) == sorted(stamped)
    send_udp(topology, SINK[4], 2)
    assert datapath.wait(1, 6).arrived_packets == 6
    assert charged(datapath) == (4, 2)


# What belongs to others


@pytest.mark.parametrize("there", [0, 1, 1_800_000_000 * NS_PER_S])
def test_the_program_stamps_what_nobody_has_stamped(there: int) -> None:
    program = Program.load("stamp", compiled(source="arrival")["stamp"], {})
    packet = bytes(12) + b"\x08\x00" + bytes(IP() / UDP())
    context = bytearray(192)
    struct.pack_into("<I", context, 8, 0x1234)
    struct.pack_into("<Q", context, 152, there)
    before_ns = time.monotonic_ns()
    returned, after = program.run_in_context(packet, bytes(context))
    assert returned == -1
    assert struct.unpack_from("<I", after, 8) == (0x1234,)
    (stamp,) = struct.unpack_from("<Q", after, 152)
    if there:
        assert stamp == there
    else:
        assert before_ns <= stamp <= time.monotonic_ns()
    program.close()


def mark_at_ingress(marks: Mapping[int, int]) -> None:
    """Classifiers on in0 that add to a packet's mark, by their priority."""
    with IPRoute() as netlink:
        (index,) = netlink.link_lookup(ifname="in0")
        netlink.tc("add", "clsact", index)
        for priority, mark in marks.items():
            # r2 = skb->mark; r2 |= mark; skb->mark = r2; return TC_ACT_UNSPEC
            instructions = b"".join(
                struct.pack("<BBhi", *each)
                for each in (
                    (0x61, 0x12, 8, 0),
                    (0x47, 0x02, 0, mark),
                    (0x63, 0x21, 8, 0),
                    (0xB7, 0x00, 0, -1),
                    (0x95, 0x00, 0, 0),
                )
            )
            program = Program.load("mark", Code(instructions, {}), {})
            netlink.tc(
                "add-filter",
                "bpf",
                index,
                fd=program.fd,
                name=f"other-{priority}",
                parent=0xFFFFFFF2,
                prio=priority,
                direct_action=True,
            )
            program.close()


@both_directions
def test_marks_and_other_filters_are_left_alone(
    topology: Topology, start: Start, way: str, interface: str
) -> None:
    """Marks of a classifier before ours, of one behind it and of the firewall come through."""
    topology.within("limiter", lambda: mark_at_ingress({1: 0x07, 50000: 0x08}))
    set_more = "-t mangle -A PREROUTING -i in0 -j MARK --or-mark 0x50"
    count = "-t mangle -A POSTROUTING -o out0 -m mark --mark 0x5f"
    topology.run("limiter", "iptables", *set_more.split())
    datapath = start(way=way)
    spec = limit(1, interface, SINK[4])
    datapath.attach((spec, Enforcement()))
    topology.run("limiter", "iptables", *count.split())
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 5)
        assert len(capture.wait(5)) == 5
    assert datapath.total(1).arrived_packets == 5
    assert charged(datapath) == (5, 0)
    listed = topology.run("limiter", "iptables", "-t", "mangle", "-nvxL", "POSTROUTING")
    (row,) = [line.split() for line in listed.splitlines() if "0x5f" in line]
    assert row[0] == "5"
    datapath.detach()
    kept = topology.run("limiter", "tc", "filter", "show", "dev", "in0", "ingress")
    assert kept.count("other-") == 2
    assert "drld" not in kept


def test_sockets_that_want_timestamps_get_the_kernels(topology: Topology, start: Start) -> None:
    datapath = start(timestamps="ebpf")
    datapath.attach((limit(1, "in0"), Enforcement()))
    with topology.udp("limiter", "10.91.1.2", 9009) as receiver:
        receiver.settimeout(30)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        # The kernel begins to stamp a moment after it was asked.
        with topology.udp("source", SOURCE[4]) as sender:

            def receive_one() -> int:
                sender.sendto(b"", ("10.91.1.2", 9009))
                _, ancillary, _, _ = receiver.recvmsg(16, 128)
                seconds, _ = struct.unpack("=qq", ancillary[0][2])
                return int(seconds)

            before_s = int(time.time())
            wait_for(receive_one, lambda _: datapath.counters()["stamped_kernel"] > 0)
            assert before_s <= receive_one() <= time.time()
    assert datapath.counters()["unstamped"] == 0


# Sources, interfaces, remains


@contextlib.contextmanager
def no_compiler(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables under which nothing can be compiled, and nothing has been."""
    yield {"CACHE_DIRECTORY": str(tmp_path / "cache"), "BCC_KERNEL_SOURCE": str(tmp_path)}


@pytest.fixture
def specs() -> list[LimitSpec]:
    return [limit(1, "in0"), limit(2, "out0")]


def test_without_ebpf_the_kernel_stamps(
    topology: Topology, start: Start, specs: list[LimitSpec], tmp_path: Path
) -> None:
    with no_compiler(tmp_path) as environment:
        datapath = start(environment=environment)
        datapath.attach(*((spec, Enforcement()) for spec in specs))
    assert "by the kernel's timestamps (no eBPF: " in datapath.reason()
    assert filters(topology) == []
    send_udp(topology, SINK[4], 3)
    datapath.wait(2, 3)
    assert datapath.counters()["stamped_kernel"] == 6


def test_ebpf_that_is_demanded_and_cannot_be_had_is_an_error(
    topology: Topology, start: Start, specs: list[LimitSpec], tmp_path: Path
) -> None:
    with no_compiler(tmp_path) as environment:
        datapath = start(timestamps="ebpf", environment=environment)
        with pytest.raises(DatapathError, match=r"headers|compiler"):
            datapath.attach(*((spec, Enforcement()) for spec in specs))
    assert (our_rules(topology), queues(topology), filters(topology)) == ([], [], [])


def test_limits_on_packets_coming_in_stamp_their_interface_alone(
    topology: Topology, start: Start, way: str
) -> None:
    datapath = start(way=way)
    datapath.attach((limit(1, "in0"), Enforcement()))
    assert datapath.reason().endswith("by eBPF on in0")
    datapath.attach((limit(1, "in0"), Enforcement()), (limit(2, "out0"), Enforcement()))
    assert datapath.reason().endswith("by eBPF on in0, out0")
    datapath.attach((limit(1, "in0"), Enforcement()))
    assert datapath.reason().endswith("by eBPF on in0")
    assert not any("out0" in line for line in filters(topology))
    datapath.detach()
    assert filters(topology) == []


def test_interfaces_may_come_and_go(topology: Topology, start: Start, way: str) -> None:
    datapath = start(way=way)
    datapath.attach((limit(1, "out0"), Enforcement()))

    def reason() -> str:
        datapath.flush()
        return datapath.reason()

    with_more, without = "by eBPF on in0, more0, more1, out0", "by eBPF on in0, out0"
    topology.run(
        "limiter", "ip", *["link", "add", "more0", "type", "veth", "peer", "name", "more1"]
    )
    try:
        assert wait_for(reason, lambda said: said.endswith(with_more)).endswith(with_more)
    finally:
        topology.run("limiter", "ip", "link", "delete", "more0")
    assert wait_for(reason, lambda said: said.endswith(without)).endswith(without)
    datapath.detach()
    assert filters(topology) == []


@pytest.mark.parametrize("then", ["auto", "kernel", "read"])
def test_a_killed_daemons_filters_are_replaced(
    topology: Topology, start: Start, way: str, specs: list[LimitSpec], then: str
) -> None:
    first = start(way=way)
    first.attach(*((spec, Enforcement()) for spec in specs))
    first.kill()
    left = filters(topology)
    assert len(left) > 0
    second = start(timestamps=then, way=way)
    second.attach(*((spec, Enforcement()) for spec in specs))
    assert len(filters(topology)) == (len(left) if then == "auto" else 0)
    send_udp(topology, SINK[4], 3)
    assert second.wait(2, 3).arrived_packets == 3
    second.detach()
    assert (our_rules(topology), queues(topology), filters(topology)) == ([], [], [])


def test_nft_takes_the_names_of_our_chains() -> None:
    """On a kernel without its queue statement, too: some words are nft's own."""
    hooks = [Hook("lo", direction, True, (4, 6), stamped=True) for direction in Direction]
    lines = [line for line in nft_install("probe", hooks, 0).splitlines() if "rule" not in line]
    assert sum(line.startswith("add chain") for line in lines) == len(Point)
    command = ["unshare", "--net", "nft", "-c", "-f", "-"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)
