"""Whatever is lost, TCP of the simulator brings everything across, once and in order."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.tcp.controls import CONTROLS
from testbed.tcp.scoreboard import Scoreboard

from ..examples import examples
from ..sim.tcp_pair import Pair

LOSSES = st.frozensets(st.integers(0, 120), max_size=60)
"""Transmissions that are lost, by their number."""


def recount(board: Scoreboard) -> tuple[int, int, int]:
    segments = board.segments.values()
    return (
        sum(segment.sacked for segment in segments),
        sum(segment.lost for segment in segments),
        sum(segment.resent for segment in segments),
    )


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(1, 80), LOSSES, LOSSES, st.integers(1, 30), st.sampled_from(sorted(CONTROLS)))
def test_every_byte_arrives_under_any_loss(
    segments: int, lost: frozenset[int], lost_acks: frozenset[int], window: int, control: str
) -> None:
    pair = Pair(
        segments=segments,
        window=window,
        control=control,
        loses=lambda segment, copy: len(pair.sent) - 1 in lost,
        loses_ack=lambda number: number in lost_acks,
    )
    pair.sender.start()
    board = pair.sender.board
    for ms in range(10, 3000, 10):
        pair.run(ms)
        assert (board.sacked, board.lost, board.resent) == recount(board)
        assert list(board.segments) == list(range(board.una, board.next_))
        assert board.in_flight >= 0
        assert pair.sender.congestion.window >= 1
        assert board.una <= pair.receiver.next_ == pair.delivered
        if pair.sender.finished:
            break
    # Timeouts double: a few lost in a row may take minutes.
    pair.run(1e7)
    assert pair.sender.finished
    assert pair.delivered == segments
    copies = {segment: pair.times_ms(segment) for segment in range(segments)}
    assert all(copies.values())
    assert len(pair.sent) == segments + pair.sender.retransmits


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 0.3), st.sampled_from(sorted(CONTROLS)))
def test_random_loss_never_stops_a_connection(seed: int, loss: float, control: str) -> None:
    rng = Random(seed)
    pair = Pair(loses=lambda segment, copy: rng.random() < loss, segments=300, control=control)
    pair.sender.start()
    pair.run(1e7)
    assert pair.delivered == 300
    assert pair.sender.finished
    assert pair.sender.board.in_flight == 0
