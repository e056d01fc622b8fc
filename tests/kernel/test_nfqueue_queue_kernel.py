"""The nfqueue datapath's queue: the giver of each verdict, and the fate of waiting packets."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from random import Random

import pytest

from drld.capture.nfqueue.packet_queue import QUEUE_PACKETS, TURN, PacketQueue, listed
from drld.errors import DatapathError
from drld.model import FlowKey
from drld.police.policer import DROP
from drld.spec import OnFailure

from .nfqueue import Start, waiting
from .packets import (
    NOTHING,
    SINK,
    SINK_TOO,
    SOURCE,
    TCP_NUMBER,
    UDP_NUMBER,
    UNLIMITED,
    both_families,
    limit,
    only,
    send_udp,
)
from .topology import Topology, wait_for

_FLOOD = """
import contextlib, socket
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("begun", flush=True)
while True:
    with contextlib.suppress(OSError):  # EPERM: dropped
        link.sendto(b"", ("127.0.0.1", 9))
"""


def test_an_unavailable_queue_is_refused_and_left_unbound(
    topology: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def make() -> PacketQueue:
        return PacketQueue(77, "lim1", bool)

    def again() -> None:
        with contextlib.closing(make()) as queue:
            assert queue.number in listed()

    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", full)
        with pytest.raises(DatapathError, match=r"NFQUEUE: .*Too many open files"):
            topology.within("limiter", make)
    topology.within("limiter", again)


def test_packets_may_come_while_a_queue_is_being_bound(topology: Topology) -> None:
    """Rules of a killed run lead to the queue before any process has bound it."""
    flood = ("ip", "netns", "exec", topology.names["limiter"], sys.executable, "-c", _FLOOD)
    rule = ("OUTPUT", "-o", "lo", "-j", "NFQUEUE", "--queue-num", "77")

    def make() -> None:
        PacketQueue(77, "lim1", lambda _: DROP).close()

    topology.run("limiter", "iptables", "-w", "-A", *rule)
    with subprocess.Popen(flood, stdout=subprocess.PIPE) as sender:
        try:
            assert sender.stdout is not None
            assert sender.stdout.readline() == b"begun\n"
            for _ in range(200):
                topology.within("limiter", make)
        finally:
            sender.kill()


@both_families
@pytest.mark.parametrize(
    ("settings", "passes"),
    [
        ([OnFailure.OPEN], True),
        ([OnFailure.CLOSED], False),
        ([OnFailure.DEFAULT], False),
        ([OnFailure.OPEN, OnFailure.OPEN], True),
    ],
    ids=["open", "closed", "default", "both"],
)
def test_packets_get_the_verdict_of_on_failure_while_the_daemon_is_dead(
    topology: Topology, start: Start, family: int, settings: list[OnFailure], passes: bool
) -> None:
    datapath = start()
    datapath.attach(
        *(
            (limit(number, "out0", SINK[family], on_failure=setting), UNLIMITED)
            for number, setting in enumerate(settings, 1)
        )
    )
    with topology.capture() as capture:
        datapath.kill()
        send_udp(topology, SINK[family], 5)
        # Sent after, and let through: when it is here the five would be too.
        send_udp(topology, SINK_TOO[family], 1, payload=77)
        wait_for(lambda: capture.wait(0), lambda seen: bool(seen) and len(seen[-1]) < 128)
        assert len(capture.packets) == (6 if passes else 1)


@pytest.mark.parametrize("on_failure", [OnFailure.OPEN, OnFailure.DEFAULT])
def test_a_packet_whose_judgement_raises_gets_the_verdict_of_a_dead_daemon(
    topology: Topology, start: Start, on_failure: OnFailure
) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4], on_failure=on_failure), UNLIMITED))
    with topology.capture() as capture:
        datapath.break_judging()
        send_udp(topology, SINK[4], 5)
        counters = wait_for(datapath.counters, lambda counters: counters["errors"] >= 5)
        datapath.break_judging(False)
        send_udp(topology, SINK[4], 3)
        assert datapath.wait(1, 3).forwarded_items == 3
        expected = 8 if on_failure is OnFailure.OPEN else 3
        assert len(capture.wait(expected)) == expected
    assert counters["errors"] == 5


def test_a_reload_keeps_tokens_and_counters(topology: Topology, start: Start) -> None:
    datapath = start()
    bucket = only(10)
    datapath.attach((limit(1, "out0", SINK[4]), bucket), (limit(2, "in0"), UNLIMITED))
    send_udp(topology, SINK[4], 6)
    datapath.wait(2, 6)
    datapath.attach(
        (limit(1, "out0", "10.91.0.0/16"), bucket), (limit(3, "out0", protocol=TCP_NUMBER), NOTHING)
    )
    send_udp(topology, SINK_TOO[4], 6)
    total = datapath.wait(1, 12)
    assert (total.arrived_items, total.forwarded_items) == (12, 10)
    with pytest.raises(KeyError):
        datapath.total(2)


def test_no_packet_slips_through_a_reload(topology: Topology, start: Start) -> None:
    datapath = start()
    sets = [
        [(limit(1, "out0", SINK[4]), NOTHING)],
        [(limit(1, "out0"), NOTHING), (limit(2, "in0", SINK_TOO[4]), NOTHING)],
    ]
    datapath.attach(*sets[0])
    done = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        with topology.udp("source", SOURCE[4]) as sender:
            while not done.is_set():
                sender.sendto(bytes(100), (SINK[4], 9000))
                sent += 1
                done.wait(0.0005)

    with topology.capture() as capture:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            for reload in range(10):
                datapath.attach(*sets[reload % 2])
        finally:
            done.set()
            sender.join()
        total = wait_for(
            lambda: datapath.total(1),
            lambda total: total.arrived_items + datapath.counters()["overflow"] >= sent,
        )
        assert capture.wait(0) == []
    assert total.arrived_items == total.dropped_items
    # A slow host may fill the queue meanwhile.
    assert total.arrived_items + datapath.counters()["overflow"] == sent
    assert total.arrived_items > 50


def test_packets_that_wait_at_a_detach_get_their_verdicts(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), only(4)))
    datapath.pause()
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 10)
        wait_for(lambda: waiting(topology), lambda waiting: waiting == 10)
        datapath.detach()
        assert len(capture.wait(4)) == 4
    assert datapath.total(1).forwarded_items == 4


def test_a_drain_is_bounded(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    datapath.pause()
    send_udp(topology, SINK[4], TURN + 44)
    wait_for(lambda: waiting(topology), lambda waiting: waiting == TURN + 44)
    assert [datapath.drain() for _ in range(3)] == [TURN, 44, 0]


def test_every_packet_gets_its_own_verdict_however_they_mix(
    topology: Topology, start: Start
) -> None:
    datapath = start()
    refused = limit(1, "out0", protocol=UDP_NUMBER, ports=((9001, 9001),))
    datapath.attach((refused, NOTHING), (limit(2, "out0"), UNLIMITED))
    datapath.pause()
    rng = Random(3)
    passes = [rng.random() < 0.5 for _ in range(TURN - 50)] + [True] * 40 + [False] * 50
    with topology.capture() as capture, topology.udp("source", SOURCE[4]) as sender:
        for number, passing in enumerate(passes):
            sender.sendto(number.to_bytes(2, "big"), (SINK[4], 9000 if passing else 9001))
        wait_for(lambda: waiting(topology), lambda waiting: waiting == len(passes))
        datapath.pause(False)
        assert datapath.wait(1, passes.count(False)).dropped_items == passes.count(False)
        seen = [int.from_bytes(packet[28:30], "big") for packet in capture.wait(passes.count(True))]
    assert seen == [number for number, passing in enumerate(passes) if passing]
    assert waiting(topology) == 0


def test_packets_beyond_the_queue_are_counted(topology: Topology, start: Start) -> None:
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    datapath.pause()
    with topology.capture() as capture:
        send_udp(topology, SINK[4], QUEUE_PACKETS + 100)
        wait_for(datapath.counters, lambda counters: counters["overflow"] >= 100)
        datapath.pause(False)
        total = datapath.wait(1, QUEUE_PACKETS)
        assert len(capture.wait(QUEUE_PACKETS)) == QUEUE_PACKETS
    assert total.arrived_items == QUEUE_PACKETS
    assert datapath.counters()["overflow"] == 100


def test_an_interface_may_go_and_come_back(topology: Topology, start: Start) -> None:
    """The interface that comes back has another index."""

    def make() -> int:
        pair = "link add in1 type veth peer name k1 netns " + topology.names["sink"]
        topology.run("limiter", "ip", *pair.split())
        topology.run("limiter", "ip", "addr", "add", "10.91.4.2/24", "dev", "in1")
        topology.run("limiter", "ip", "link", "set", "in1", "up")
        topology.run("sink", "ip", "addr", "add", "10.91.4.1/24", "dev", "k1")
        topology.run("sink", "ip", "link", "set", "k1", "up")
        return topology.within("limiter", lambda: socket.if_nametoindex("in1"))

    datapath = start()
    first = make()
    try:
        datapath.attach((limit(1, "in1", "10.91.4.2"), UNLIMITED))
        with topology.udp("sink", "10.91.4.1") as sender:
            sender.sendto(b"", ("10.91.4.2", 9000))
        assert datapath.wait(1, 1).arrived_items == 1
        topology.run("limiter", "ip", "link", "delete", "in1")
        assert make() != first
        with topology.udp("sink", "10.91.4.1") as sender:
            sender.sendto(b"", ("10.91.4.2", 9000))
        assert datapath.wait(1, 2).arrived_items == 2
    finally:
        topology.run("limiter", "ip", "link", "delete", "in1")


def test_flow_keys_are_comparable_across_processes(topology: Topology, start: Start) -> None:
    """`evict` gets the names that `flows` showed."""
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    send_udp(topology, SINK[4], 1)
    (flow,) = datapath.wait(1, 1).flows
    assert isinstance(flow, FlowKey)
    datapath.program(1, UNLIMITED, evict=[flow])
    assert datapath.total(1).flows == {}
