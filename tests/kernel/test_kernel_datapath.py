"""The kernel datapath against real packets (the topology is drawn in topology.py).

Buckets that do not fill let an exact number of packets pass, so every count here is exact.
"""

from __future__ import annotations

import select
import socket
import threading
from dataclasses import replace

import pytest

from drld.errors import DatapathError
from drld.model import Enforcement
from drld.policy import Mode
from drld.spec import OnFailure

from ..factories import MS
from .attached import identities
from .kernel_limits import GRACE_NS, Start, expected, filters, limit, passed
from .packets import (
    LENGTH,
    NOTHING,
    SINK,
    SOURCE,
    UNLIMITED,
    both_directions,
    both_families,
    only,
    send_udp,
    ten_of_25_pass,
)
from .topology import SO_RCVBUFFORCE, Topology, wait_for


@both_families
@both_directions
def test_udp_is_counted_to_the_byte_and_limited(
    topology: Topology, kernel_start: Start, family: int, interface: str
) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1, interface, SINK[family]), only(10, LENGTH[family])))
    total = ten_of_25_pass(topology, datapath, family)
    assert len(total.flows) == 1
    odd = datapath.counters()
    assert (odd["truncated"], odd["malformed"], odd["fragments"]) == (0, 0, 0)


def test_a_credit_is_granted_once(topology: Topology, kernel_start: Start) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1), only(5)))
    send_udp(topology, SINK[4], 5)
    datapath.wait(1, 5)
    granted = replace(only(5), credit=2 * LENGTH[4], credit_id=1)
    for _ in range(2):
        datapath.program(1, granted)
        datapath.program(1, replace(granted, fill_rate=1))
    send_udp(topology, SINK[4], 5)
    assert datapath.wait(1, 10).forwarded_items == 7


def test_evicted_flows_make_room(topology: Topology, kernel_start: Start) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1), UNLIMITED))
    send_udp(topology, SINK[4], 3)
    (flow,) = datapath.wait(1, 3).flows
    datapath.program(1, UNLIMITED, [flow])
    assert datapath.total(1).flows == {}
    send_udp(topology, SINK[4], 2)
    assert list(datapath.wait(1, 5).flows.values())[-1:] in ([2 * LENGTH[4]], [LENGTH[4]])


def test_all_limits_of_a_packet_are_charged_or_none(
    topology: Topology, kernel_start: Start
) -> None:
    datapath = kernel_start()
    site, shadow = limit(1, destination="10.91.2.0/24"), limit(2, mode=Mode.SHADOW)
    customer = limit(3)
    datapath.attach((customer, only(20)), (shadow, only(4)), (site, only(10)))
    send_udp(topology, SINK[4], 25)
    total = {each: datapath.wait(each, 25) for each in (1, 2, 3)}
    assert (total[1].forwarded_items, total[1].dropped_items) == (10, 15)
    assert (total[2].forwarded_items, total[2].dropped_items) == (4, 21)
    # What the site refused cost the customer nothing.
    assert (total[3].forwarded_items, total[3].dropped_items) == (10, 0)


def test_detach_leaves_nothing(topology: Topology, kernel_start: Start, way: str) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1, "in0"), UNLIMITED), (limit(2, "out0"), NOTHING))
    assert filters(topology) == expected(way, "in0 ingress", "out0 egress")
    datapath.detach()
    datapath.detach()
    assert filters(topology) == []
    with topology.capture() as capture:
        send_udp(topology, SINK[4], 3)
        assert len(capture.wait(3)) == 3


def test_a_refused_start_leaves_nothing(topology: Topology, kernel_start: Start) -> None:
    datapath = kernel_start()
    with pytest.raises(DatapathError, match="out9"):
        datapath.attach((limit(1), NOTHING), (limit(2, "out9"), UNLIMITED))
    assert filters(topology) == []
    datapath.attach((limit(1), UNLIMITED))


def test_a_refused_start_keeps_a_dead_daemons_programs(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    first = kernel_start()
    first.attach((limit(1), only(10)), (limit(2, "in0"), UNLIMITED))
    assert passed(topology, first, 4) == 4
    first.kill()
    left = identities(topology, "out0", "egress"), identities(topology, "in0", "ingress")
    second = kernel_start()
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
    third = kernel_start()
    third.attach((limit(1), only(10)))
    assert "taken over" in third.reason()
    assert passed(topology, third, 20) == 6
    assert filters(topology) == expected(way, "out0 egress")
    third.detach()
    assert filters(topology) == []


def test_two_limiters_police_one_interface(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    first, other = kernel_start(), kernel_start("lim2")
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
    topology: Topology, kernel_start: Start, on_failure: OnFailure, passes: int
) -> None:
    datapath = kernel_start()
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
    topology: Topology, kernel_start: Start
) -> None:
    limited, free = limit(1, destination="10.91.2.1/32"), limit(2, destination="10.91.3.1/32")
    first = kernel_start()
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
            second = kernel_start()
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


def test_a_record_that_drains_and_one_that_fills(topology: Topology, kernel_start: Start) -> None:
    datapath = kernel_start()
    datapath.attach(
        (limit(1), Enforcement(fill_rate=-100 * LENGTH[4] * 1000, depth=10 * LENGTH[4]))
    )
    # Empty after a tenth of a millisecond, which the coarse clock shows a few later.
    wait_for(lambda: passed(topology, datapath, 1), lambda count: count == 0)
    assert passed(topology, datapath, 5) == 0
    datapath.program(1, Enforcement(fill_rate=10**9, depth=10 * LENGTH[4]))
    assert passed(topology, datapath, 5) == 5
