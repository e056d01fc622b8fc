"""The gate: one packet in, one verdict out."""

import struct
from ipaddress import ip_network
from random import Random
from typing import Any

import pytest

from drld.capture.gate import Gate
from drld.capture.spec import Match
from drld.model import Enforcement
from drld.police.direction import Direction
from drld.police.policer import DROP, FORWARD, MARK, Excess
from drld.spec import LimitSpec, OnFailure

from ..factories import limit_spec, with_policy

IN, OUT = Direction.IN, Direction.OUT
OPEN = Enforcement()


def limit(limit_id: int, on_failure: OnFailure = OnFailure.SHARE, **conditions: Any) -> LimitSpec:
    match = Match("eth1", OUT, **conditions)
    return limit_spec(id=limit_id, match=match, on_failure=on_failure)


def udp(length: int = 1000, fragment: int = 0, ihl: int = 5, ecn: int = 0) -> bytes:
    first = 0x40 | ihl
    fixed = struct.pack("!BBHHHBBH", first, ecn, length, 7, fragment, 64, 17, 0)
    return fixed + bytes([10, 0, 0, 1, 10, 9, 2, 1]) + struct.pack("!HH", 1024, 53)


@pytest.fixture
def gate() -> Gate:
    return Gate(Random(1))


def judge(gate: Gate, data: bytes, *, direction: Direction = OUT, now_ns: int = 0) -> int:
    return gate.judge(data, "eth1", direction, 0, now_ns)


def test_a_packet_under_no_limit_passes_and_is_counted(gate: Gate) -> None:
    assert judge(gate, udp())
    gate.replace([(limit(1), Enforcement(drop_probability=1.0))], 0)
    assert judge(gate, udp(), direction=IN)
    assert not judge(gate, udp())
    assert gate.counts.unmatched == 2
    assert gate.read(1, 1).dropped_items == 1


def test_the_ip_length_is_charged_not_the_bytes_copied(gate: Gate) -> None:
    gate.replace([(limit(1), Enforcement(depth=2500))], 0)
    assert [judge(gate, udp(1000)) for _ in range(3)] == [True, True, False]
    assert gate.read(1, 1).arrived_tokens == 3000


def test_the_bucket_fills_with_the_time_of_arrival(gate: Gate) -> None:
    gate.replace([(limit(1), Enforcement(fill_rate=1000, depth=1000))], 0)
    times = [0, 500_000_000, 1_000_000_000]
    assert [judge(gate, udp(1000), now_ns=now) for now in times] == [True, False, True]


def test_odd_packets_are_counted_by_kind(gate: Gate) -> None:
    gate.replace([(limit(1), OPEN)], 0)
    judge(gate, udp(fragment=0x2000))
    judge(gate, udp(fragment=100))
    judge(gate, udp(length=21))
    judge(gate, udp(ihl=15))
    judge(gate, b"")
    counts = gate.counts
    assert (counts.fragments, counts.malformed, counts.truncated) == (2, 2, 1)
    assert counts.unmatched == 0  # the limit has no condition that could not be read
    assert gate.read(1, 1).arrived_items == 5


def test_replacing_keeps_limits_that_stay_and_forgets_others(gate: Gate) -> None:
    bucket = Enforcement(depth=2000)
    gate.replace([(limit(1), bucket), (limit(2), OPEN)], 0)
    assert judge(gate, udp(1500))
    narrow = limit(1, destination=ip_network("10.9.0.0/16"))
    gate.replace([(narrow, bucket), (limit(3), OPEN)], 0)
    assert not judge(gate, udp(1500))
    read = gate.read(1, 1)
    assert (read.arrived_items, read.forwarded_items) == (2, 1)
    assert gate.read(3, 1).arrived_items == 1
    with pytest.raises(KeyError):
        gate.read(2, 1)


def test_replacing_programs_limits_that_stay(gate: Gate) -> None:
    gate.replace([(limit(1), OPEN)], 0)
    gate.replace([(limit(1), Enforcement(drop_probability=1.0))], 0)
    assert not judge(gate, udp())


def test_a_programmed_record_is_enforced(gate: Gate) -> None:
    gate.replace([(limit(1), OPEN)], 0)
    assert judge(gate, udp())
    (flow,) = gate.read(1, 1).flows
    gate.program(1, Enforcement(drop_probability=1.0), [flow], 1)
    assert gate.read(1, 2).flows == {}
    assert not judge(gate, udp())


def test_packets_that_cannot_be_judged_pass_only_if_every_limit_is_open(gate: Gate) -> None:
    for settings, expected in (
        ([OnFailure.OPEN, OnFailure.OPEN], True),
        ([OnFailure.OPEN, OnFailure.SHARE], False),
        ([OnFailure.CLOSED], False),
    ):
        gate.replace([(limit(i, setting), OPEN) for i, setting in enumerate(settings, 1)], 0)
        assert gate.fail_open is expected


LOW = Enforcement(depth=10**6, flow_rate=10**6, flow_depth=10**4, reserve=10**9)
"""A record under which each packet leaves too little once the bucket is not full. Twenty packets
of a flow may be marked."""


def whole(**conditions: int) -> bytes:
    """A packet of 1,000 bytes that was not cut off."""
    return udp(**conditions).ljust(1000, b"\0")


def run_low(gate: Gate, excess: Excess) -> None:
    """Give the gate one limit, whose bucket a fragment, of another flow, has met already."""
    gate.replace([(with_policy(limit(1), excess=excess), LOW)], 0)
    assert judge(gate, whole(fragment=8)) == FORWARD


@pytest.mark.parametrize(("ecn", "verdict"), [(0, DROP), (1, MARK), (2, MARK), (3, MARK)])
def test_a_limit_that_marks_marks_capable_packets(gate: Gate, ecn: int, verdict: int) -> None:
    run_low(gate, Excess.MARK)
    assert gate.marks
    # The second is remembered, the third is known.
    assert [judge(gate, whole(ecn=ecn)) for _ in range(3)] == [verdict] * 3


@pytest.mark.parametrize(
    "packet",
    [udp(ecn=2), whole(ecn=2, ihl=4), whole(ecn=2, length=21)],
    ids=["cut off", "header too short", "contradicts itself"],
)
def test_a_packet_that_cannot_be_rewritten_is_not_capable(gate: Gate, packet: bytes) -> None:
    run_low(gate, Excess.MARK)
    assert judge(gate, packet) == DROP


def test_no_limit_marks_unless_it_says_so(gate: Gate) -> None:
    run_low(gate, Excess.DROP)
    assert not gate.marks
    assert judge(gate, whole(ecn=2)) == DROP
