"""Arrival times of the nfqueue datapath: the charged packets, and the times of their charges."""

from __future__ import annotations

import select
import socket
import time
from concurrent import futures

import pytest

from drld.model import Enforcement
from drld.police.arrival_time import LATEST_NS
from testbed.attempts import ATTEMPTS

from .nfqueue import Start, charged, our_rules, waiting, went_wrong
from .packets import (
    LENGTH,
    SINK,
    UNLIMITED,
    both_directions,
    both_families,
    limit,
    send_udp,
)
from .topology import DEADLINE_S, Topology, wait_for

PACKETS = 4
"""Few enough packets that even on a slow host all come within `LATEST_NS`."""
GAP_NS = 2_000_000
IP_TRANSPARENT = 19

both_stamps = pytest.mark.parametrize("source", ["ebpf", "kernel"])


def one_packet_a_gap(length: int) -> Enforcement:
    """A bucket that holds one packet, and fills in the time between two of them."""
    return Enforcement(fill_rate=length * 1_000_000_000 // GAP_NS, depth=length)


def queued(topology: Topology, packets: int) -> int:
    """How many packets wait in the queue, once there are so many."""
    return wait_for(lambda: waiting(topology), lambda count: count >= packets)


def send_apart(topology: Topology, family: int, packets: int = PACKETS) -> None:
    """Have packets arrive, each more than a gap after the one before was in the queue."""
    pause = select.poll()
    for number in range(packets):
        due_ns = time.monotonic_ns() + 2 * GAP_NS
        while time.monotonic_ns() < due_ns:
            pause.poll(1)
        send_udp(topology, SINK[family], 1)
        assert queued(topology, number + 1) == number + 1


@both_families
@both_directions
@both_stamps
def test_packets_that_arrived_apart_pass_though_they_are_read_at_once(
    topology: Topology, start: Start, source: str, interface: str, family: int
) -> None:
    record = one_packet_a_gap(LENGTH[family])
    for _ in range(ATTEMPTS):
        datapath = start(timestamps=source)
        datapath.attach((limit(1, interface, SINK[family]), record))
        datapath.pause()
        began_ns = time.monotonic_ns()
        send_apart(topology, family)
        datapath.freeze()
        if time.monotonic_ns() - began_ns < LATEST_NS:
            break
        datapath.detach()  # the host stood still until they were too old
    # A tick that comes before the reading settles no bucket behind the packets' backs.
    datapath.program(1, record)
    datapath.flush()
    assert datapath.drain() == PACKETS
    total = datapath.total(1)
    assert (total.forwarded_items, total.dropped_items) == (PACKETS, 0)
    assert charged(datapath, source) == (PACKETS, 0)
    assert went_wrong(datapath) == {}


@both_directions
def test_packets_charged_when_they_are_read_form_a_burst(
    topology: Topology, start: Start, interface: str
) -> None:
    datapath = start(timestamps="read")
    datapath.attach((limit(1, interface, SINK[4]), one_packet_a_gap(LENGTH[4])))
    datapath.pause()
    send_apart(topology, 4)
    datapath.freeze()
    assert datapath.drain() == PACKETS
    total = datapath.total(1)
    assert (total.forwarded_items, total.dropped_items) == (1, PACKETS - 1)
    assert datapath.counters()["unstamped"] == PACKETS
    assert "when read" in datapath.reason()


@both_stamps
def test_a_burst_stays_a_burst_however_late_it_is_read(
    topology: Topology, start: Start, source: str
) -> None:
    """Stamps give a stream no more than its bucket: what arrives at once is dropped."""
    datapath = start(timestamps=source)
    datapath.attach((limit(1, "out0", SINK[4]), Enforcement(fill_rate=1, depth=3 * LENGTH[4])))
    datapath.pause()
    send_udp(topology, SINK[4], PACKETS)
    assert queued(topology, PACKETS) == PACKETS
    datapath.drain()
    assert datapath.total(1).forwarded_items == 3


@both_stamps
def test_a_tcp_stream_is_stamped_segment_by_segment(
    topology: Topology, start: Start, source: str
) -> None:
    """The stream's packets bear a departure time when they come, and travel in super-packets."""
    datapath = start(timestamps=source)
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    size = 300_000

    def listen() -> socket.socket:
        return socket.create_server((SINK[4], 9001))

    def connect() -> socket.socket:
        return socket.create_connection((SINK[4], 9001), timeout=DEADLINE_S)

    with topology.within("sink", listen) as server, topology.within("source", connect) as client:
        accepted, _ = server.accept()
        accepted.settimeout(DEADLINE_S)
        with accepted, futures.ThreadPoolExecutor(1) as executor:
            # No window need hold all of it.
            sent = executor.submit(client.sendall, bytes(size))
            received = 0
            while received < size and (data := accepted.recv(1 << 16)):
                received += len(data)
            sent.result()
    assert received == size
    total = datapath.wait(1, 1 + size // 1460)
    assert charged(datapath, source) == (total.arrived_items, 0)


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
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED), (limit(2, "in0"), UNLIMITED))
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 3)
        send_local(topology, 4)
        send_local(topology, 5, source="192.0.2.9")
        assert len(capture.wait(12)) == 12
    assert datapath.total(1).arrived_items == 12
    assert datapath.total(2).arrived_items == 3
    assert charged(datapath, source) == (6, 9)


def test_packets_that_the_firewall_refuses_are_not_charged(
    topology: Topology, start: Start
) -> None:
    refusal = ["FORWARD", "-p", "udp", "--dport", "7000", "-j", "DROP"]
    datapath = start()
    datapath.attach((limit(1, "out0", SINK[4]), UNLIMITED))
    topology.run("limiter", "iptables", "-A", *refusal)
    try:
        send_udp(topology, SINK[4], 3, port=7000)
        send_udp(topology, SINK[4], 2, port=7001)
        assert datapath.wait(1, 2).arrived_items == 2
    finally:
        topology.run("limiter", "iptables", "-D", *refusal)


def test_a_reload_keeps_every_packet_limited_once(topology: Topology, start: Start) -> None:
    """A hook that gets a limit by mark goes back to its one rule, and forward again."""
    datapath = start()
    plain = limit(1, "out0", SINK[4])
    datapath.attach((plain, UNLIMITED))
    stamped = our_rules(topology)
    send_udp(topology, SINK[4], 2)
    datapath.wait(1, 2)
    datapath.attach((plain, UNLIMITED), (limit(2, "out0", mark=(1, 1)), UNLIMITED))
    assert "those out on out0 when read" in datapath.reason()
    send_udp(topology, SINK[4], 2)
    datapath.wait(1, 4)
    datapath.attach((plain, UNLIMITED))
    assert sorted(our_rules(topology)) == sorted(stamped)
    send_udp(topology, SINK[4], 2)
    assert datapath.wait(1, 6).arrived_items == 6
    assert charged(datapath) == (4, 2)
