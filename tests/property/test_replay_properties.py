"""`drlctl replay`: verdicts are the policer's, and no window has more than rate x t + burst."""

from __future__ import annotations

import io
import struct
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture.packet import parse
from drld.capture.registered.replay import Replay
from drld.capture.spec import Match
from drld.capture.trace_file import Captured
from drld.limiter import static_share
from drld.model import NS_PER_S, FlowKey
from drld.police.direction import Direction
from drld.police.policer import DROP, MARK, Excess, Policer
from drld.police.tally import MAX_FLOWS, MAX_SPANS, Tally
from drld.policy import Mode
from drld.spec import LimitSpec
from drld.units import BYTES

from ..factories import MS, limit_spec

RATE, BURST = 100_000, 6000
PACKETS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 1, 5, 50, 400]),
        st.sampled_from([64, 500, 1500]),
        st.integers(0, 5),
        st.sampled_from([0, 2]),
    ),
    max_size=120,
)
"""Milliseconds since the packet before, size, flow, and ECN bits."""


class Noting(Replay):
    """Keeps the verdicts."""

    def judge(self, it: Captured, now_ns: int) -> int:
        verdict = super().judge(it, now_ns)
        self.__dict__.setdefault("judged", []).append((it.time_ns, it.size, verdict))
        return verdict


def data(size: int, flow: int, ecn: int = 0) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, ecn, size, 0, 0, 64, 17, 0)
    return head + bytes([10, 0, 0, 1, 10, 9, 2, 1]) + struct.pack("!HH", 1000 + flow, 53) + bytes(8)


def trace(packets: list[tuple[int, int, int, int]]) -> tuple[bytes, list[tuple[int, bytes]]]:
    """A capture that cut packets off, and what is in it."""
    written, listed, now_ms = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 40, 101), [], 0
    for wait_ms, size, flow, ecn in packets:
        now_ms += wait_ms
        frame = data(size, flow, ecn)
        written += struct.pack("<IIII", now_ms // 1000, now_ms % 1000 * MS, len(frame), size)
        written += frame
        listed.append((now_ms * MS, frame))
    return written, listed


def limit(**changes: object) -> LimitSpec:
    return limit_spec("fair", rate=RATE, burst=BURST, **changes)


def replayed(content: bytes, limits: list[LimitSpec], allocator: str, words: str = "") -> Noting:
    found = Noting(io.BytesIO(content), words, limits, allocator, Random(1))
    for _ in found.run():
        pass
    return found


@given(PACKETS, st.sampled_from(Mode), st.sampled_from(Excess))
def test_the_verdicts_are_those_of_the_policer(
    packets: list[tuple[int, int, int, int]], mode: Mode, excess: Excess
) -> None:
    content, listed = trace(packets)
    spec = limit(mode=mode, excess=excess)
    found = replayed(content, [spec], "static")
    policer = Policer(spec.policy, static_share(spec.policy, 1.0), listed[0][0] if listed else 0)
    verdicts = []
    for now_ns, frame in listed:
        header = parse(frame)
        verdicts.append(policer.police(header.flow, header.length, now_ns, Random(1), frame[1] > 0))
    assert [verdict for _, _, verdict in found.__dict__.get("judged", [])] == verdicts
    counted = policer.read(1)
    (result,) = found.results()
    for name in ("arrived", "forwarded", "dropped", "marked"):
        assert result[f"{name}_packets"] == getattr(counted, f"{name}_items")
        assert result[f"{name}_bytes"] == getattr(counted, f"{name}_tokens")


@pytest.mark.parametrize("allocator", ["static", "fair"])
@given(packets=PACKETS)
def test_no_window_has_more_than_the_rate_and_a_burst(
    allocator: str, packets: list[tuple[int, int, int, int]]
) -> None:
    content, _ = trace(packets)
    judged = replayed(content, [limit()], allocator).__dict__.get("judged", [])
    passed = [(now_ns, size) for now_ns, size, verdict in judged if verdict != DROP]
    for start, (since_ns, _) in enumerate(passed):
        total = 0
        for now_ns, size in passed[start:]:
            total += size
            assert total * NS_PER_S <= RATE * (now_ns - since_ns) + BURST * NS_PER_S


@given(PACKETS)
def test_each_place_is_judged_as_if_alone_if_no_words_say_more(
    packets: list[tuple[int, int, int, int]],
) -> None:
    """If words say where, a packet that is dropped on its way in does not come out."""
    content, _ = trace(packets)
    both = [
        limit(id=1, name="in", match=Match("eth0", Direction.IN)),
        limit(id=2, name="out", match=Match("eth1", Direction.OUT)),
    ]
    apart = replayed(content, both, "static").results()
    alone = [replayed(content, [it], "static").results()[0] for it in both]
    assert apart == alone
    entering, leaving = replayed(content, both, "static", "in eth0 out eth1").results()
    assert entering == alone[0]
    assert leaving["arrived_packets"] == entering["forwarded_packets"]
    (unseen,) = replayed(content, both[:1], "static", "out eth1").results()
    assert unseen["arrived_packets"] == 0


@given(PACKETS)
def test_a_tally_adds_up(packets: list[tuple[int, int, int, int]]) -> None:
    content, _ = trace(packets)
    (it,) = replayed(content, [limit(excess=Excess.MARK)], "fair").results()
    assert it["arrived_bytes"] == it["forwarded_bytes"] + it["dropped_bytes"]
    assert [sum(column) for column in zip(*it["spans"], strict=True)] in (
        [it["arrived_bytes"], it["forwarded_bytes"], it["dropped_bytes"]],
        [],
    )
    assert sum(flow["forwarded_bytes"] for flow in it["flows"]) == it["forwarded_bytes"]
    dropped = [span[2] for span in it["spans"]]
    assert (it["worst_second"] or {"dropped_bytes": 0})["dropped_bytes"] == max(dropped, default=0)


def test_fair_divides_the_rate_among_flows() -> None:
    """One fast flow beside one slow one; with one bucket the slow one loses its part too."""
    packets = [(1 if number % 10 else 2, 500, int(number % 10 == 0), 0) for number in range(3000)]
    content, _ = trace(packets)
    lost = {}
    for allocator in ("static", "fair"):
        (it,) = replayed(content, [limit()], allocator).results()
        slow = next(flow for flow in it["flows"] if ":1001 " in flow["flow"])
        lost[allocator] = 1 - slow["forwarded_bytes"] / slow["arrived_bytes"]
    assert lost["fair"] < lost["static"] / 2


def test_a_tally_is_bounded() -> None:
    tally = Tally(0, BYTES.min_rate)
    for number in range(3 * MAX_FLOWS):
        flow = FlowKey(17, number.to_bytes(4, "big"), bytes(4), 1, 1)
        tally.arrive(flow, 100, number * NS_PER_S)
        tally.forward(flow, 100, False)
        tally.arrive(FlowKey(6, bytes(4), bytes(4), 1, 1), 200, number * NS_PER_S)
    tally.end()
    assert len(tally.flows) <= MAX_FLOWS
    assert len(tally.spans) <= MAX_SPANS
    assert sum(span.arrived for span in tally.spans) == 300 * 3 * MAX_FLOWS
    assert tally.flows[FlowKey(6, bytes(4), bytes(4), 1, 1)][0] == 200 * 3 * MAX_FLOWS
    assert tally.worst is None
    assert tally.span_s == 32


def test_packets_that_the_capture_cut_off_are_marked_too() -> None:
    """A packet of which only the headers were captured is as ECN-capable as it was."""
    content, _ = trace([(10, 1000, 0, 2), (0, 500, 1, 2)] * 300)
    found = replayed(content, [limit(excess=Excess.MARK)], "fair")
    assert MARK in {verdict for _, _, verdict in found.__dict__["judged"]}
