"""The kernel datapath against real packets (the topology is drawn in topology.py).

Buckets that do not fill let an exact number of packets pass, so every count here is exact.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from drld.capture.kernel.datapath import KernelDatapath
from drld.capture.packet import parse
from drld.capture.spec import match_of
from drld.ebpf import bpf
from drld.ebpf.bpf import Code, Program
from drld.ebpf.clsact import Clsact
from drld.ebpf.hook import Found
from drld.errors import DatapathError
from drld.model import GRACE_INTERVALS, Enforcement
from drld.police.direction import Direction
from drld.police.source_sample import SourcePrefix
from drld.policy import Mode
from drld.spec import LimitSpec, OnFailure
from testbed.chaos.leaks import held

from ..factories import MS
from . import packets
from .attached import WAYS, identities, ours, take_off_tcx, tcx_programs
from .packets import (
    LENGTH,
    NOTHING,
    SINK,
    SOURCE,
    UDP_NUMBER,
    UNLIMITED,
    both_directions,
    both_families,
    only,
    send_udp,
    ten_of_25_pass,
)
from .remote import RemoteKernelDatapath
from .topology import SO_RCVBUFFORCE, Topology, wait_for

pytestmark = pytest.mark.kernel

Start = Callable[..., RemoteKernelDatapath]

INTERVAL_NS = 50 * MS
TC_ACT_SHOT = 2
GRACE_NS = GRACE_INTERVALS * INTERVAL_NS


@pytest.fixture
def start(topology: Topology, way: str) -> Iterator[Start]:
    """Starts a process with a datapath that attaches this way; all of them end with the test."""
    processes: list[RemoteKernelDatapath] = []

    def start(limiter: str = "lim1") -> RemoteKernelDatapath:
        processes.append(RemoteKernelDatapath(topology.names["limiter"], limiter, way))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


def limit(
    limit_id: int, interface: str = "out0", destination: str | None = None, **settings: Any
) -> LimitSpec:
    """A limit on UDP: a new interface reports the multicast groups it is in."""
    settings = {"interval_ns": INTERVAL_NS, "on_failure": OnFailure.SHARE, **settings}
    return packets.limit(limit_id, interface, destination, protocol=UDP_NUMBER, **settings)


def filters(topology: Topology) -> list[str]:
    """Our programs and clsact qdiscs in the limiter's namespace."""
    return ours(topology, "in0", "out0")


def expected(way: str, *hooks: str) -> list[str]:
    """The expected programs for these hooks, one an interface."""
    return [
        line
        for hook in hooks
        for line in ([hook, f"{hook.split()[0]} clsact"] if way == "clsact" else [hook])
    ]


def passed(topology: Topology, datapath: RemoteKernelDatapath, count: int) -> int:
    """How many of these packets limit 1 lets pass."""
    before = datapath.total(1)
    send_udp(topology, SINK[4], count)
    after = datapath.wait(1, before.arrived_items + count)
    return after.forwarded_items - before.forwarded_items


@both_families
@both_directions
def test_udp_is_counted_to_the_byte_and_limited(
    topology: Topology, start: Start, family: int, interface: str
) -> None:
    datapath = start()
    datapath.attach((limit(1, interface, SINK[family]), only(10, LENGTH[family])))
    total = ten_of_25_pass(topology, datapath, family)
    assert len(total.flows) == 1
    odd = datapath.counters()
    assert (odd["truncated"], odd["malformed"], odd["fragments"]) == (0, 0, 0)


def test_a_credit_is_granted_once(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1), only(5)))
    send_udp(topology, SINK[4], 5)
    datapath.wait(1, 5)
    granted = replace(only(5), credit=2 * LENGTH[4], credit_id=1)
    for _ in range(2):
        datapath.program(1, granted)
        datapath.program(1, replace(granted, fill_rate=1))
    send_udp(topology, SINK[4], 5)
    assert datapath.wait(1, 10).forwarded_items == 7


def test_evicted_flows_make_room(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1), UNLIMITED))
    send_udp(topology, SINK[4], 3)
    (flow,) = datapath.wait(1, 3).flows
    datapath.program(1, UNLIMITED, [flow])
    assert datapath.total(1).flows == {}
    send_udp(topology, SINK[4], 2)
    assert list(datapath.wait(1, 5).flows.values())[-1:] in ([2 * LENGTH[4]], [LENGTH[4]])


def test_all_limits_of_a_packet_are_charged_or_none(topology: Topology, start: Start) -> None:
    datapath = start()
    site, shadow = limit(1, destination="10.91.2.0/24"), limit(2, mode=Mode.SHADOW)
    customer = limit(3)
    datapath.attach((customer, only(20)), (shadow, only(4)), (site, only(10)))
    send_udp(topology, SINK[4], 25)
    total = {each: datapath.wait(each, 25) for each in (1, 2, 3)}
    assert (total[1].forwarded_items, total[1].dropped_items) == (10, 15)
    assert (total[2].forwarded_items, total[2].dropped_items) == (4, 21)
    # What the site refused cost the customer nothing.
    assert (total[3].forwarded_items, total[3].dropped_items) == (10, 0)


def test_detach_leaves_nothing(topology: Topology, start: Start, way: str) -> None:
    datapath = start()
    datapath.attach((limit(1, "in0"), UNLIMITED), (limit(2, "out0"), NOTHING))
    assert filters(topology) == expected(way, "in0 ingress", "out0 egress")
    datapath.detach()
    datapath.detach()
    assert filters(topology) == []
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 3)
        assert len(capture.wait(3)) == 3


def test_a_reload_keeps_tokens_and_counters(topology: Topology, start: Start, way: str) -> None:
    datapath = start()
    datapath.attach((limit(1), only(10)), (limit(2, "in0"), UNLIMITED))
    send_udp(topology, SINK[4], 4)
    datapath.wait(1, 4)
    datapath.attach((limit(3, "in0"), only(100)), (limit(1), only(10)))
    send_udp(topology, SINK[4], 20)
    total = datapath.wait(1, 24)
    assert (total.forwarded_items, total.arrived_items) == (10, 24)
    assert datapath.wait(3, 20).forwarded_items == 20
    datapath.attach((limit(3, "in0"), only(100)))
    assert filters(topology) == expected(way, "in0 ingress")


def test_a_reload_that_changes_no_match_needs_no_new_program(
    topology: Topology, start: Start
) -> None:
    datapath = start()
    datapath.attach((limit(1), only(10)), (limit(2, "in0"), UNLIMITED))
    before = identities(topology, "out0", "egress"), identities(topology, "in0", "ingress")
    datapath.attach((limit(1, burst=70_000), only(4)), (limit(2, "in0"), UNLIMITED))
    after = identities(topology, "out0", "egress"), identities(topology, "in0", "ingress")
    assert after == before
    assert [len(each) for each in after] == [1, 1]
    send_udp(topology, SINK[4], 30)
    assert datapath.wait(1, 30).forwarded_items == 4
    datapath.attach((limit(1, burst=70_000), only(4)), (limit(2, "in0", "10.92.1.0/24"), NOTHING))
    assert identities(topology, "out0", "egress") == before[0]
    assert identities(topology, "in0", "ingress") != before[1]
    datapath.attach((limit(1), UNLIMITED))
    assert identities(topology, "in0", "ingress") == []
    assert passed(topology, datapath, 4) == 4


def test_a_reload_changes_the_definition_of_a_flow(topology: Topology, start: Start) -> None:
    """Flows change from five-tuples to sources and back; the sample begins empty each time."""
    datapath = start()
    sent = 0
    for flow, flows in ((None, 4), (SourcePrefix(24), 1), (SourcePrefix(), 1), (None, 4)):
        datapath.attach((limit(1, flow=flow), UNLIMITED))
        for port in range(9000, 9004):
            send_udp(topology, SINK[4], 3, port=port)
        sent += 12
        assert len(datapath.wait(1, sent).flows) == flows


def test_a_prepared_program_is_attached_if_it_fits(topology: Topology, start: Start) -> None:
    datapath = start()

    def programs() -> set[int]:
        return {number for kind, number in held(datapath.pid) if kind == "prog_id"}

    datapath.attach((limit(1), only(10)))
    first = programs()
    datapath.prepare(limit(1, destination="10.92.1.0/24"))
    prepared = programs() - first
    assert first < programs()
    assert set(identities(topology, "out0", "egress")) < first
    datapath.attach((limit(1, destination="10.92.1.0/24"), only(10)))
    assert set(identities(topology, "out0", "egress")) == prepared
    # A prepared program that does not fit is gone, and another one is made.
    datapath.prepare(limit(1, destination="10.92.2.0/24"))
    datapath.attach((limit(1), only(4)))
    assert passed(topology, datapath, 20) == 4
    assert len(programs()) == len(first)
    # What cannot be prepared does no harm.
    datapath.prepare(limit(1, "out9"), limit(2))
    assert len(programs()) == len(first)


def test_more_limits_than_the_maps_have_room_for_move(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1), only(10)))
    send_udp(topology, SINK[4], 4)
    datapath.wait(1, 4)
    datapath.attach((limit(1), only(10)), *others(2, 198))
    send_udp(topology, SINK[4], 20)
    total = datapath.wait(1, 24)
    assert (total.forwarded_items, total.arrived_items) == (10, 24)


class Recorded:
    """Attaches nothing: the test runs the programs. It may act while one is made or attached."""

    way = "none"

    def __init__(self) -> None:
        self.program: Program | None = None
        self.making: Callable[[], None] = lambda: None
        self.attached: Callable[[], None] = lambda: None

    def program_name(self, kind: str) -> str:
        self.making()
        return kind

    def put(self, index: int, direction: Direction, program: Program, handover_ids: str) -> None:
        self.program = program
        self.attached()

    def remove(self, index: int, direction: Direction) -> None:
        pass

    def has(self, index: int, direction: Direction) -> bool:
        return True

    def found(self) -> list[Found]:
        return []

    def close(self) -> None:
        pass


def test_packets_that_come_while_limits_move_are_charged_and_counted() -> None:
    recorded = Recorded()
    datapath = KernelDatapath("moving", attachment=lambda _: recorded)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 100, 0, 0, 64, UDP_NUMBER, 0, b"abcd", b"efgh")
    frame = bytes(12) + b"\x08\x00" + header + bytes(80)

    def arrive(packets: int) -> None:
        assert recorded.program is not None
        for _ in range(packets):
            recorded.program.run(frame)

    def attach(count: int) -> None:
        few = [(limit(1, "lo", interval_ns=3600 * 10**9), only(10, 100)), *others(2, count)]
        datapath.attach(
            [(replace(it, match=replace(match_of(it), interface="lo")), now) for it, now in few],
            time.monotonic_ns(),
        )

    with contextlib.ExitStack() as stack:
        stack.callback(datapath.detach)
        attach(1)
        arrive(4)
        datapath.read(1, time.monotonic_ns())
        recorded.making = lambda: arrive(3)
        recorded.attached = lambda: arrive(1)
        attach(100)
        arrive(5)
        total = datapath.read(1, time.monotonic_ns())
    assert (total.arrived_items, total.forwarded_items) == (9, 6)
    assert (total.arrived_tokens, total.forwarded_tokens) == (900, 600)


@pytest.mark.parametrize("flow", [None, SourcePrefix(24)])
def test_a_snapshot_foretells_the_programs_next_verdict(flow: SourcePrefix | None) -> None:
    """The copy has the tokens of limit and flow; the seventh packet of a flow leaves too few."""
    recorded = Recorded()
    datapath = KernelDatapath("asked", attachment=lambda _: recorded)
    record = Enforcement(depth=1000, flow_rate=10, flow_depth=1000, reserve=600)
    spec = limit(1, "lo", interval_ns=3600 * 10**9, flow=flow)
    spec = replace(spec, match=replace(match_of(spec), interface="lo"))

    def agree(source: bytes) -> int:
        """The program's verdict on the next packet, which the snapshot has told before."""
        assert recorded.program is not None
        header = struct.pack("!BBHHHBBH", 0x45, 0, 100, 0, 0, 64, UDP_NUMBER, 0) + source
        packet = header + bytes(84)
        key = parse(packet).flow
        snapshot = datapath.snapshot(1, key)
        told = snapshot.police(key, 100, time.monotonic_ns(), Random(1))
        action, _, _ = recorded.program.run(bytes(12) + b"\x08\x00" + packet)
        assert told == (action != TC_ACT_SHOT)
        assert datapath.snapshot(1, key).bucket.tokens == snapshot.bucket.tokens
        return told

    with contextlib.ExitStack() as stack:
        stack.callback(datapath.detach)
        datapath.attach([(spec, record)], time.monotonic_ns())
        assert [agree(bytes([10, 0, 0, 1])) for _ in range(8)] == [1] * 6 + [0] * 2
        assert [agree(bytes([10, 0, 1, 1])) for _ in range(4)] == [1, 1, 0, 0]
        # Flows that find no place in the table are not policed one by one.
        for number in range(64):
            agree(bytes([10, 1, number, 1]))
        with pytest.raises(KeyError):
            datapath.snapshot(2, parse(b"").flow)


def others(first: int, count: int) -> list[tuple[LimitSpec, Enforcement]]:
    """Limits with ids from `first` on, under which no packet falls."""
    ids = range(first, first + count)
    return [(limit(n, destination=f"10.92.{n % 256}.0/24"), UNLIMITED) for n in ids]


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(("before", "after"), [(60, 10), (250, 20)])
def test_most_limits_may_be_exchanged_for_fewer(
    topology: Topology, start: Start, before: int, after: int, crash: bool
) -> None:
    datapath = start()
    datapath.attach((limit(1), only(10)), *others(2, before))
    assert passed(topology, datapath, 4) == 4
    if crash:
        datapath.kill()
        datapath = start()
    datapath.attach((limit(1), only(10)), *others(1000, after))
    assert passed(topology, datapath, 20) == 6


def test_a_refused_reload_changes_nothing(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1), only(10)))
    with pytest.raises(DatapathError, match="interface out9: does not exist") as caught:
        datapath.attach((limit(2), UNLIMITED), (limit(3, "out9"), UNLIMITED))
    assert caught.value.limits.keys() == {3}
    send_udp(topology, SINK[4], 20)
    assert datapath.wait(1, 20).forwarded_items == 10


def test_a_refused_start_leaves_nothing(topology: Topology, start: Start) -> None:
    datapath = start()
    with pytest.raises(DatapathError, match="out9"):
        datapath.attach((limit(1), NOTHING), (limit(2, "out9"), UNLIMITED))
    assert filters(topology) == []
    datapath.attach((limit(1), UNLIMITED))


def test_a_refused_start_keeps_a_dead_daemons_programs(
    topology: Topology, start: Start, way: str
) -> None:
    first = start()
    first.attach((limit(1), only(10)), (limit(2, "in0"), UNLIMITED))
    assert passed(topology, first, 4) == 4
    first.kill()
    left = identities(topology, "out0", "egress"), identities(topology, "in0", "ingress")
    second = start()
    with pytest.raises(DatapathError, match="out9"):
        second.attach((limit(1), only(10)), (limit(3, "out9"), UNLIMITED))
    second.detach()
    assert (
        identities(topology, "out0", "egress"),
        identities(topology, "in0", "ingress"),
    ) == left
    # Where its program was replaced already the new one stays, and goes on with the same tokens.
    second.refuse("in0")
    with pytest.raises(DatapathError, match="no program on in0"):
        second.attach((limit(4), UNLIMITED), (limit(1), only(10)), (limit(2, "in0"), UNLIMITED))
    assert filters(topology) == expected(way, "in0 ingress", "out0 egress")
    second.kill()
    third = start()
    third.attach((limit(1), only(10)))
    assert "taken over" in third.reason()
    assert passed(topology, third, 20) == 6
    assert filters(topology) == expected(way, "out0 egress")
    third.detach()
    assert filters(topology) == []


def test_two_limiters_police_one_interface(topology: Topology, start: Start, way: str) -> None:
    first, other = start(), start("lim2")
    first.attach((limit(1), only(5)))
    other.attach((limit(1), only(3)))
    send_udp(topology, SINK[4], 10)
    # The newest program comes first; the others see what it lets pass.
    assert other.wait(1, 10).forwarded_items == 3
    assert first.wait(1, 3).forwarded_items == 3
    assert filters(topology).count("out0 egress") == 2
    first.detach()
    assert filters(topology) == expected(way, "out0 egress")


@pytest.mark.parametrize(
    ("on_failure", "passes"),
    [(OnFailure.SHARE, 3), (OnFailure.OPEN, 20), (OnFailure.CLOSED, 0)],
    ids=["share", "open", "closed"],
)
def test_a_dead_daemon_leaves_its_limit_to_the_program(
    topology: Topology, start: Start, on_failure: OnFailure, passes: int
) -> None:
    datapath = start()
    datapath.attach((limit(1, on_failure=on_failure), only(10)))
    datapath.set_share(1, only(3))
    assert passed(topology, datapath, 2) == 2
    # Until the grace is over the last record holds (to the nanosecond: test_bpf_verdicts.py).
    datapath.pause()
    select.poll().poll(GRACE_NS // MS + 50)
    assert passed(topology, datapath, 20) == passes
    # A tick is a sign of life: the record holds again, and what is left of its tokens.
    left = {OnFailure.SHARE: 0, OnFailure.OPEN: 8, OnFailure.CLOSED: 8}[on_failure]
    datapath.pause(False)
    datapath.flush()
    datapath.program(1, only(11))
    assert passed(topology, datapath, 20) == left


def test_the_next_daemon_takes_over_tokens_and_hooks_under_load(
    topology: Topology, start: Start
) -> None:
    limited, free = limit(1, destination="10.91.2.1/32"), limit(2, destination="10.91.3.1/32")
    first = start()
    first.attach((limited, only(10)), (free, UNLIMITED))
    stop = threading.Event()
    sent = 0

    def load() -> None:
        nonlocal sent
        with topology.udp("source", SOURCE[4]) as sender:
            while not stop.wait(0.0005):
                for address in ("10.91.2.1", "10.91.3.1"):
                    sender.sendto(bytes(100), (address, 9000))
                sent += 1

    with (
        topology.udp("sink", "10.91.2.1", 9000) as strict,
        topology.udp("sink", "10.91.3.1", 9000) as loose,
    ):
        for sink in (strict, loose):
            sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4 << 20)
        received = Received(strict, loose)
        threads = [threading.Thread(target=load), threading.Thread(target=received.run)]
        for thread in threads:
            thread.start()
        try:
            first.wait(1, 100)
            first.kill()
            second = start()
            second.attach((limited, only(10)), (free, UNLIMITED))
            reason = second.reason()
            second.wait(1, 100)
        finally:
            stop.set()
            threads[0].join()
            wait_for(lambda: received.counts[loose], lambda count: count >= sent)
            received.done.set()
            threads[1].join()
    assert "taken over" in reason
    assert received.counts == {strict: 10, loose: sent}
    second.detach()
    assert filters(topology) == []


class Received:
    """Counts datagrams as they come."""

    def __init__(self, *sinks: socket.socket) -> None:
        self.counts = dict.fromkeys(sinks, 0)
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.is_set():
            for sink in select.select(list(self.counts), [], [], 0.01)[0]:
                sink.recv(2000)
                self.counts[sink] += 1


def test_a_record_that_drains_and_one_that_fills(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach(
        (limit(1), Enforcement(fill_rate=-100 * LENGTH[4] * 1000, depth=10 * LENGTH[4]))
    )
    # Empty after a tenth of a millisecond, which the coarse clock shows a few later.
    wait_for(lambda: passed(topology, datapath, 1), lambda count: count == 0)
    assert passed(topology, datapath, 5) == 0
    datapath.program(1, Enforcement(fill_rate=10**9, depth=10 * LENGTH[4]))
    assert passed(topology, datapath, 5) == 5


def test_an_interface_that_comes_back_is_limited_again(
    topology: Topology, start: Start, way: str
) -> None:
    pair = ("link", "add", "name", "again0", "type", "veth", "peer", "name", "again1")
    topology.run("limiter", "ip", *pair)
    try:
        datapath = start()
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
    topology: Topology, start: Start
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
        datapath = start()
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
    topology: Topology, start: Start, way: str
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
        datapath = start()
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


def test_programs_removed_by_hand_are_put_back(topology: Topology, start: Start, way: str) -> None:
    datapath = start()
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


def test_programs_of_others_are_left_alone(topology: Topology, start: Start, way: str) -> None:
    topology.within("limiter", attach_others)
    kept = filters(topology), tcx_programs(topology)
    first = start()
    first.attach((limit(1), only(10)))
    assert passed(topology, first, 4) == 4
    assert len(filters(topology)) == len(kept[0]) + 1
    first.kill()
    second = start()
    second.attach((limit(1), only(10)))
    assert f"tc-BPF ({way}) on out0 out, taken over" in second.reason()
    assert len(filters(topology)) == len(kept[0]) + 1
    assert passed(topology, second, 20) == 6
    second.detach()
    assert (filters(topology), tcx_programs(topology)) == kept
