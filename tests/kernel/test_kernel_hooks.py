"""The programs of the kernel datapath on interfaces that come, go and change, and beside others."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Mapping
from functools import partial

from drld.ebpf import bpf
from drld.ebpf.bpf import Code, Program
from drld.ebpf.clsact import Clsact
from drld.police.direction import Direction

from .attached import WAYS, ours, take_off_tcx, tcx_programs
from .kernel_limits import Start, expected, filters, limit, passed
from .packets import (
    UNLIMITED,
    only,
)
from .topology import Topology, wait_for


def test_an_interface_that_comes_back_is_limited_again(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    pair = ("link", "add", "name", "again0", "type", "veth", "peer", "name", "again1")
    topology.run("limiter", "ip", *pair)
    try:
        datapath = kernel_start()
        datapath.attach((limit(1, "again0"), UNLIMITED))
        topology.run("limiter", "ip", "link", "del", "again0")
        topology.run("limiter", "ip", *pair)
        counters = wait_for(datapath.counters, lambda counters: counters["reattached"] == 1)
        assert counters["reattached"] == 1
        assert ours(topology, "again0") == expected(way, "again0 egress")
        datapath.detach()
        assert ours(topology, "again0") == []
    finally:
        topology.run("limiter", "ip", "link", "del", "again0", check=False)


def test_an_interface_that_comes_back_with_another_link_layer_is_limited(
    topology: Topology, kernel_start: Start
) -> None:
    def make(mode: str) -> None:
        topology.run("limiter", "ip", "tuntap", "add", "again0", "mode", mode)
        topology.run("limiter", "ip", "address", "add", "10.93.0.1/24", "dev", "again0")
        topology.run("limiter", "ip", "link", "set", "again0", "up", "arp", "off")

    def send(count: int) -> None:
        with topology.udp("limiter", "10.93.0.1") as sender:
            for _ in range(count):
                sender.sendto(bytes(100), ("10.93.0.2", 9000))

    make("tun")  # without a link header
    try:
        datapath = kernel_start()
        datapath.attach((limit(1, "again0", destination="10.93.0.2"), only(5, 128)))
        send(3)
        assert datapath.wait(1, 3).forwarded_items == 3
        topology.run("limiter", "ip", "link", "del", "again0")
        make("tap")
        assert wait_for(datapath.counters, partial(reattached, 1))["reattached"] == 1
        send(10)
        total = datapath.wait(1, 13)
        assert (total.arrived_items, total.forwarded_items) == (13, 5)
    finally:
        topology.run("limiter", "ip", "link", "del", "again0", check=False)


def test_interfaces_that_exchange_names_are_limited_by_name(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    """The first name goes to a device without limits, then to one under another limit."""

    def rename(*names: tuple[str, str]) -> None:
        datapath.pause()
        for old, new in names:
            topology.run("limiter", "ip", "link", "set", old, "name", new)
        datapath.pause(False)

    pair = ("link", "add", "name", "again0", "type", "veth", "peer", "name", "again1")
    topology.run("limiter", "ip", *pair)
    try:
        datapath = kernel_start()
        datapath.attach((limit(1, "again0"), UNLIMITED))
        rename(("again0", "again2"), ("again1", "again0"))
        assert wait_for(datapath.counters, partial(reattached, 1))["reattached"] == 1
        assert ours(topology, "again0", "again2") == expected(way, "again0 egress")
        datapath.attach((limit(1, "again0"), UNLIMITED), (limit(2, "again2"), UNLIMITED))
        rename(("again0", "again1"), ("again2", "again0"), ("again1", "again2"))
        assert wait_for(datapath.counters, partial(reattached, 3))["reattached"] == 3
        assert ours(topology, "again0", "again2") == expected(way, "again0 egress", "again2 egress")
    finally:
        for name in ("again0", "again1", "again2"):
            topology.run("limiter", "ip", "link", "del", name, check=False)


def take_filter(topology: Topology) -> None:
    topology.run("limiter", "tc", "filter", "del", "dev", "out0", "egress")


def take_qdisc(topology: Topology) -> None:
    topology.run("limiter", "tc", "qdisc", "del", "dev", "out0", "clsact")


def take_program(topology: Topology) -> None:
    take_off_tcx(topology, "out0")


BY_HAND = {"clsact": [take_filter, take_qdisc], "tcx": [take_program]}


def test_programs_removed_by_hand_are_put_back(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1), only(5)), (limit(2, "in0"), UNLIMITED))
    assert passed(topology, datapath, 3) == 3
    before = filters(topology)
    # With the tokens that it had; and what is there is left alone, so each time one is put back.
    for times, (take, left) in enumerate(zip(BY_HAND[way] * 2, (2, 0, 0, 0), strict=False), 1):
        datapath.pause()
        take(topology)
        assert len(filters(topology)) < len(before)
        datapath.pause(False)
        counters = wait_for(datapath.counters, partial(reattached, times))
        assert counters["reattached"] == times
        assert filters(topology) == before
        assert passed(topology, datapath, 10) == left


def reattached(times: int, counters: Mapping[str, int]) -> bool:
    return counters["reattached"] >= times


# What belongs to others


def attach_others() -> None:
    """Another's programs on tcx and clsact of out0: they let everything go on."""
    instructions = struct.pack("<BBhiBBhi", 0xB7, 0, 0, -1, 0x95, 0, 0, 0)
    index = socket.if_nametoindex("out0")
    program = Program.load("other", Code(instructions, {}), {})
    with contextlib.closing(program), contextlib.closing(Clsact("other")) as clsact:
        clsact.put(index, Direction.OUT, program, "")
        if "tcx" in WAYS:
            bpf.attach(index, bpf.TCX_EGRESS, program)


def test_programs_of_others_are_left_alone(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    topology.within("limiter", attach_others)
    kept = filters(topology), tcx_programs(topology)
    first = kernel_start()
    first.attach((limit(1), only(10)))
    assert passed(topology, first, 4) == 4
    assert len(filters(topology)) == len(kept[0]) + 1
    first.kill()
    second = kernel_start()
    second.attach((limit(1), only(10)))
    assert f"tc-BPF ({way}) on out0 out, taken over" in second.reason()
    assert len(filters(topology)) == len(kept[0]) + 1
    assert passed(topology, second, 20) == 6
    second.detach()
    assert (filters(topology), tcx_programs(topology)) == kept
