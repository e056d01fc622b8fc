"""Programs that stamp arrivals: they disturb no other program, and leave nothing behind."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyroute2 import IPRoute
from scapy.layers.inet import IP, UDP

from drld.capture.nft_rules import nft_install
from drld.capture.queue_hooks import Hook, Point
from drld.ebpf.bpf import Code, Program
from drld.ebpf.compiler import compiled
from drld.errors import DatapathError
from drld.model import NS_PER_S
from drld.police.direction import Direction
from drld.spec import LimitSpec

from .attached import tcx_programs
from .nfqueue import Start, charged, our_rules, queues
from .packets import (
    SINK,
    SOURCE,
    UNLIMITED,
    both_directions,
    limit,
    send_udp,
)
from .topology import Topology, wait_for

SO_TIMESTAMPNS = 35


def filters(topology: Topology) -> list[str]:
    """Classifiers and their hooks in the limiter's namespace, those of other programs too."""
    return [
        line
        for _, device in topology.within("limiter", socket.if_nameindex)
        for kind in (["qdisc", "show"], ["filter", "show"])
        for line in topology.run(
            "limiter", "tc", *kind, "dev", device, *(["ingress"] if kind[0] == "filter" else [])
        ).splitlines()
        if "clsact" in line or "drld" in line
    ] + [" ".join(program) for program in tcx_programs(topology)]


@pytest.mark.parametrize("there", [0, 1, 1_800_000_000 * NS_PER_S])
def test_the_program_stamps_packets_without_a_stamp(there: int) -> None:
    program = Program.load("stamp", compiled("arrival")["stamp"], {})
    packet = bytes(12) + b"\x08\x00" + bytes(IP() / UDP())
    context = bytearray(192)
    struct.pack_into("<I", context, 8, 0x1234)
    struct.pack_into("<Q", context, 152, there)
    before_ns = time.monotonic_ns()
    returned, _, after = program.run(packet, bytes(context))
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
    datapath.attach((spec, UNLIMITED))
    topology.run("limiter", "iptables", *count.split())
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 5)
        assert len(capture.wait(5)) == 5
    assert datapath.total(1).arrived_items == 5
    assert charged(datapath) == (5, 0)
    listed = topology.run("limiter", "iptables", "-t", "mangle", "-nvxL", "POSTROUTING")
    (row,) = [line.split() for line in listed.splitlines() if "0x5f" in line]
    assert row[0] == "5"
    datapath.detach()
    kept = topology.run("limiter", "tc", "filter", "show", "dev", "in0", "ingress")
    assert kept.count("other-") == 2
    assert "drld" not in kept


def test_sockets_that_want_timestamps_get_those_of_the_kernel(
    topology: Topology, start: Start
) -> None:
    datapath = start(timestamps="ebpf")
    datapath.attach((limit(1, "in0"), UNLIMITED))
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
        datapath.attach(*((spec, UNLIMITED) for spec in specs))
    assert "by the kernel's timestamps (no eBPF: " in datapath.reason()
    assert filters(topology) == []
    send_udp(topology, SINK[4], 3)
    datapath.wait(2, 3)
    assert datapath.counters()["stamped_kernel"] == 6


def test_required_ebpf_that_is_unavailable_is_an_error(
    topology: Topology, start: Start, specs: list[LimitSpec], tmp_path: Path
) -> None:
    with no_compiler(tmp_path) as environment:
        datapath = start(timestamps="ebpf", environment=environment)
        with pytest.raises(DatapathError, match=r"headers|compiler"):
            datapath.attach(*((spec, UNLIMITED) for spec in specs))
    assert (our_rules(topology), queues(topology), filters(topology)) == ([], [], [])


def test_limits_on_packets_coming_in_stamp_their_interface_alone(
    topology: Topology, start: Start, way: str
) -> None:
    datapath = start(way=way)
    datapath.attach((limit(1, "in0"), UNLIMITED))
    assert datapath.reason().endswith("by eBPF on in0")
    datapath.attach((limit(1, "in0"), UNLIMITED), (limit(2, "out0"), UNLIMITED))
    assert datapath.reason().endswith("by eBPF on in0, out0")
    datapath.attach((limit(1, "in0"), UNLIMITED))
    assert datapath.reason().endswith("by eBPF on in0")
    assert not any("out0" in line for line in filters(topology))
    datapath.detach()
    assert filters(topology) == []


def test_interfaces_may_come_and_go(topology: Topology, start: Start, way: str) -> None:
    datapath = start(way=way)
    datapath.attach((limit(1, "out0"), UNLIMITED))

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
    first.attach(*((spec, UNLIMITED) for spec in specs))
    first.kill()
    left = filters(topology)
    assert len(left) > 0
    second = start(timestamps=then, way=way)
    second.attach(*((spec, UNLIMITED) for spec in specs))
    assert len(filters(topology)) == (len(left) if then == "auto" else 0)
    send_udp(topology, SINK[4], 3)
    assert second.wait(2, 3).arrived_items == 3
    second.detach()
    assert (our_rules(topology), queues(topology), filters(topology)) == ([], [], [])


def test_nft_takes_the_names_of_the_chains() -> None:
    """Some words are nft's own; a kernel without the queue statement parses them as well."""
    hooks = [Hook("lo", direction, True, (4, 6), stamped=True) for direction in Direction]
    lines = [line for line in nft_install("probe", hooks, 0).splitlines() if "rule" not in line]
    assert sum(line.startswith("add chain") for line in lines) == len(Point)
    command = ["unshare", "--net", "nft", "-c", "-f", "-"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)
