"""Explicit congestion notification and super-packets of the simulator's TCP."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from drld.model import FlowId
from drld.police.policer import FORWARD, MARK
from testbed.sim.host import Host
from testbed.sim.run import simulate
from testbed.tcp.clock import Clock
from testbed.tcp.receiver import Ack, Receiver
from testbed.tcp.sender import Sender, State

from ..testbed_factories import experiment

MS = 1_000_000


def test_a_mark_is_echoed_until_the_sender_says_that_it_has_reduced() -> None:
    clock = Clock()
    acks: list[Ack] = []
    receiver = Receiver(clock, acks.append, lambda segments: None, rtt_ns=40 * MS)
    for segment in range(60):
        receiver.receive(segment, marked=segment == 41, reduced=segment == 50)
    echoed = [ack.next_ for ack in acks if ack.echo]
    # The mark is answered at once, and so is the segment that says so.
    assert echoed[0] == 42
    assert all(ack.echo == (42 <= ack.next_ <= 50) for ack in acks)
    assert 51 in [ack.next_ for ack in acks]


def test_a_mark_beside_a_reduction_is_a_new_one() -> None:
    acks: list[Ack] = []
    receiver = Receiver(Clock(), acks.append, lambda segments: None, rtt_ns=40 * MS)
    receiver.receive(0, marked=True)
    receiver.receive(1, marked=True, reduced=True)
    assert [ack.echo for ack in acks] == [True, True]


def a_sender(window: int = 40) -> tuple[Sender, list[tuple[int, bool]]]:
    """One in congestion avoidance, and the new segments that it sends, with what they say."""
    sent: list[tuple[int, bool]] = []
    sender = Sender(
        Clock(), lambda segment: sent.append((segment, sender.tells_reduction())),
        rtt_ns=40 * MS, window=window,
    )  # fmt: skip
    sender.congestion.threshold = window
    sender.start()
    return sender, sent


def test_an_echo_halves_the_window_once_a_round_trip() -> None:
    sender, _ = a_sender()
    sender.acknowledge(Ack(2, echo=True))
    assert sender.state is State.CWR
    assert sender.congestion.threshold == 20
    for number in range(4, 41, 2):
        sender.acknowledge(Ack(number, echo=True))
        assert sender.congestion.threshold == 20
    assert sender.congestion.window == pytest.approx(20, abs=1)
    # What was sent after the mark is acknowledged: the reduction is over, and may come again.
    sender.acknowledge(Ack(42))
    assert (sender.state, sender.congestion.window) == (State.OPEN, 20)
    sender.acknowledge(Ack(44, echo=True))
    assert sender.congestion.threshold == 10


def test_the_first_new_segment_says_that_the_window_was_reduced() -> None:
    sender, sent = a_sender()
    for number in range(2, 41, 2):
        sender.acknowledge(Ack(number, echo=True))
    said = [segment for segment, reduced in sent if reduced]
    assert said == [40]
    assert sender.retransmits == 0


def test_a_loss_while_the_window_is_reduced_does_not_reduce_it_again() -> None:
    sender, _ = a_sender()
    sender.acknowledge(Ack(2, echo=True))
    for last in range(4, 10):
        sender.acknowledge(Ack(2, ((3, last),), echo=True))
    assert sender.state is State.RECOVERY
    assert sender.retransmits == 1
    assert sender.congestion.threshold == 20


def passing(
    monkeypatch: pytest.MonkeyPatch, of: Callable[[Host, FlowId, int, bool, int], int]
) -> None:
    """Have verdicts pass through `of`."""
    plain = Host.passes

    def passes(self: Host, flow: FlowId, length: int, capable: bool = False) -> int:
        return of(self, flow, length, capable, plain(self, flow, length, capable))

    monkeypatch.setattr(Host, "passes", passes)


def run(**changes: Any) -> dict[str, Any]:
    flows = [{"limiter": "l1", "count": 10, "rtt": "40ms", **changes}]
    made = experiment(flows=flows, limiters=["l1", "l2"], seconds=20, warmup="5s")
    return simulate(made, "ctb")


def test_marks_in_the_place_of_drops_leave_less_to_send_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = []
    rng = Random(1)

    def on_a_ramp(host: Host, flow: FlowId, length: int, capable: bool, verdict: int) -> int:
        empty = 1 - host.policer.bucket.tokens / 75_000
        if verdict == FORWARD and capable and rng.random() < empty**4:
            marks.append(flow)
            return MARK
        return verdict

    before = run(ecn=True)
    passing(monkeypatch, on_a_ramp)
    after = run(ecn=True)
    assert marks
    retransmits = [sum(flow["retransmits"] for flow in one["flows"]) for one in (before, after)]
    assert retransmits[1] < retransmits[0] / 3
    assert after["aggregate_bps"] == pytest.approx(10e6, rel=0.05)


@pytest.mark.parametrize("ecn", [False, True])
def test_only_new_segments_of_flows_with_ecn_are_capable(
    monkeypatch: pytest.MonkeyPatch, ecn: bool
) -> None:
    seen: list[tuple[int, bool]] = []

    def note(host: Host, flow: FlowId, length: int, capable: bool, verdict: int) -> int:
        seen.append((length, capable))
        return verdict

    passing(monkeypatch, note)
    retransmits = sum(flow["retransmits"] for flow in run(ecn=ecn)["flows"])
    assert retransmits > 100
    whole = [capable for length, capable in seen if length == 1500]
    assert whole.count(False) == (pytest.approx(retransmits, abs=40) if ecn else len(whole))
    assert not any(capable for length, capable in seen if length < 1500)


def test_super_packets_are_judged_whole_and_charged_as_their_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lengths: list[int] = []

    def note(host: Host, flow: FlowId, length: int, capable: bool, verdict: int) -> int:
        lengths.append(length)
        return verdict

    passing(monkeypatch, note)
    record = run(gso=True, congestion="cubic")
    data = [length for length in lengths if length >= 1500]
    assert all(length % 1500 == 0 for length in data)
    assert 3000 <= max(data) <= 44 * 1500
    assert sum(length > 1500 for length in data) > len(data) / 10
    assert record["aggregate_bps"] == pytest.approx(10e6, rel=0.03)
    assert all(flow["goodput_bps"] > 0.2e6 for flow in record["flows"])
