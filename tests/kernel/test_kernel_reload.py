"""Reloads of the kernel datapath: tokens, counters, programs, and moves to larger maps."""

from __future__ import annotations

import contextlib
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from drld.capture import kernel_classifier as classifier
from drld.capture import kernel_layout as layout
from drld.capture.kernel.datapath import KernelDatapath
from drld.capture.packet import parse
from drld.capture.spec import match_of
from drld.ebpf.bpf import Program
from drld.ebpf.hook import Found
from drld.errors import DatapathError
from drld.model import Enforcement
from drld.police.direction import Direction
from drld.police.source_sample import SourcePrefix
from drld.spec import LimitSpec, OnFailure
from testbed.chaos.leaks import held

from .attached import identities
from .kernel_limits import Start, expected, filters, limit, passed
from .packets import NOTHING, SINK, SINK_TOO, UDP_NUMBER, UNLIMITED, only, send_udp
from .topology import Topology

TC_ACT_SHOT = 2


def test_a_reload_keeps_tokens_and_counters(
    topology: Topology, kernel_start: Start, way: str
) -> None:
    datapath = kernel_start()
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
    topology: Topology, kernel_start: Start
) -> None:
    datapath = kernel_start()
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


def test_a_reload_changes_the_definition_of_a_flow(topology: Topology, kernel_start: Start) -> None:
    """Flows change from five-tuples to sources and back; the sample begins empty each time."""
    datapath = kernel_start()
    sent = 0
    for flow, flows in ((None, 4), (SourcePrefix(24), 1), (SourcePrefix(), 1), (None, 4)):
        datapath.attach((limit(1, flow=flow), UNLIMITED))
        for port in range(9000, 9004):
            send_udp(topology, SINK[4], 3, port=port)
        sent += 12
        assert len(datapath.wait(1, sent).flows) == flows


def test_a_prepared_program_is_attached_if_it_fits(topology: Topology, kernel_start: Start) -> None:
    datapath = kernel_start()

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


def test_more_limits_than_the_maps_have_room_for_move(
    topology: Topology, kernel_start: Start
) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1, destination=SINK[4]), only(10)))
    send_udp(topology, SINK[4], 4)
    send_udp(topology, SINK_TOO[4], 3)
    datapath.wait(1, 4)
    assert datapath.counters()["unmatched"] == 3
    datapath.attach((limit(1, destination=SINK[4]), only(10)), *others(2, 198))
    send_udp(topology, SINK_TOO[4], 5)
    send_udp(topology, SINK[4], 20)
    total = datapath.wait(1, 24)
    assert (total.forwarded_items, total.arrived_items) == (10, 24)
    assert datapath.counters()["unmatched"] == 8


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

    def others(self, index: int, direction: Direction) -> list[str]:
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


def test_a_change_of_one_limit_leaves_tables_and_records_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 10,000 limits, to make them again took the event loop 0.4 s."""
    datapath = KernelDatapath("unchanged", attachment=lambda _: Recorded())
    made: Counter[str] = Counter()
    for place, name in ((classifier, "tables"), (layout, "command"), (layout, "limit_flags")):
        monkeypatch.setattr(place, name, counted(made, name, getattr(place, name)))
    records = {number: only(number) for number in range(1, 51)}

    def work(**changed: Any) -> Counter[str]:
        """The work for a change of one limit."""
        made.clear()
        specs = [limit(number, "lo", f"10.92.{number}.0/24") for number in records]
        specs[6] = replace(limit(7, "lo", "10.92.7.0/24"), **changed)
        pairs = [(it, records[it.id]) for it in specs]
        datapath.attach(pairs, time.monotonic_ns())
        return made

    with contextlib.ExitStack() as stack:
        stack.callback(datapath.detach)
        assert work() == {"tables": 1, "limit_flags": len(records)}
        assert work() == {}
        records[7] = only(20)
        assert work() == {"command": 1}
        assert work(on_failure=OnFailure.OPEN) == {"limit_flags": 1}
        assert work(match=limit(7, "lo", "10.93.7.0/24").match) == {"tables": 1, "limit_flags": 1}
        # A record that no flush has put in force yet is not forgotten.
        datapath.program(9, only(30), (), time.monotonic_ns())
        records[9] = only(30)
        assert work()["command"] == 1


def counted(made: Counter[str], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its calls counted."""

    def counting(*arguments: Any) -> Any:
        made[name] += 1
        return call(*arguments)

    return counting


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
    topology: Topology, kernel_start: Start, before: int, after: int, crash: bool
) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1), only(10)), *others(2, before))
    assert passed(topology, datapath, 4) == 4
    if crash:
        datapath.kill()
        datapath = kernel_start()
    datapath.attach((limit(1), only(10)), *others(1000, after))
    assert passed(topology, datapath, 20) == 6


def test_a_refused_reload_changes_nothing(topology: Topology, kernel_start: Start) -> None:
    datapath = kernel_start()
    datapath.attach((limit(1), only(10)))
    with pytest.raises(DatapathError, match="interface out9: does not exist") as caught:
        datapath.attach((limit(2), UNLIMITED), (limit(3, "out9"), UNLIMITED))
    assert caught.value.limits.keys() == {3}
    send_udp(topology, SINK[4], 20)
    assert datapath.wait(1, 20).forwarded_items == 10
