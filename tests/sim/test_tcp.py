"""TCP of the simulator against what the RFCs say, on loss patterns that one can follow by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from testbed.tcp.receiver import Ack
from testbed.tcp.sender import State

from .tcp_pair import MS, RTT_NS, Pair, first_copies


def started(ms: float, **given: Any) -> Pair:
    pair = Pair(**given)
    pair.sender.start()
    pair.run(ms)
    return pair


def test_the_first_window_has_ten_segments() -> None:
    assert [segment for _, segment in started(1).sent] == list(range(10))


def test_slow_start_doubles_in_each_round_trip() -> None:
    pair = Pair()
    pair.sender.start()
    windows = []
    for round_trip in range(4):
        pair.run(41 + 40 * round_trip)
        windows.append(pair.sender.congestion.window)
    # As soon as segments are acknowledged in twos, the last one may still be waiting.
    assert windows == pytest.approx([20, 40, 80, 160], abs=1)


def test_congestion_avoidance_grows_by_one_segment_a_round_trip() -> None:
    pair = Pair(window=10)
    pair.sender.congestion.threshold = 10
    pair.sender.start()
    pair.run(39)
    assert pair.sender.congestion.window == 10
    for round_trip in range(1, 12):
        pair.run(40 * (round_trip + 1) - 1)
        assert pair.sender.congestion.window - 10 == pytest.approx(round_trip, abs=1)


def test_the_receivers_window_holds_the_sender_and_its_window_does_not_grow() -> None:
    pair = started(2000, most_out=20)
    assert pair.sender.board.out <= 20
    assert pair.sender.congestion.window <= 40
    assert pair.delivered == pytest.approx(20 * 2000 / 40, rel=0.1)


def test_one_loss_is_repaired_at_once_and_halves_the_window() -> None:
    pair = started(200, loses=first_copies(4), segments=200)
    sender = pair.sender
    assert sender.retransmits == 1
    assert sender.timeouts == 0
    # Sent as soon as three later ones had been acknowledged selectively, or the first of them had
    # been and a quarter of a round trip had passed.
    first, second = pair.times_ms(4)
    assert 40 <= second - first <= 55
    # Four were acknowledged before the loss showed: the window was 14.
    assert sender.congestion.threshold == 7
    assert sender.state is State.OPEN


def test_several_losses_of_one_window_count_as_one() -> None:
    pair = started(600, loses=first_copies(2, 5, 6, 9), segments=60)
    assert pair.sender.retransmits == 4
    assert pair.sender.timeouts == 0
    assert pair.sender.finished
    assert pair.sender.congestion.threshold == 6
    assert all(len(pair.times_ms(segment)) == 2 for segment in (2, 5, 6, 9))
    # New Reno with SACK repairs them in one round trip, one RTT after the first.
    assert max(pair.times_ms(9)) - min(pair.times_ms(9)) < 100


def test_proportional_rate_reduction_sends_half_of_what_is_delivered() -> None:
    """RFC 6937: over a recovery that loses little, a segment leaves for each two that arrive."""
    pair = Pair(loses=first_copies(40), window=40)
    pair.sender.congestion.threshold = 40
    pair.sender.start()
    pair.run(39)
    before = len(pair.sent)
    # 0 to 39 arrive at 20 ms; the 40 that follow them leave at 40 ms, and 40 is lost.
    pair.run(79)
    in_round = len(pair.sent) - before
    assert in_round == pytest.approx(40, abs=1)
    pair.run(119)
    assert pair.sender.state is State.RECOVERY
    assert len(pair.sent) - before - in_round == pytest.approx(21, abs=2)
    pair.run(159)
    assert pair.sender.congestion.window == pytest.approx(20, abs=2)


def test_a_lost_retransmission_is_found_without_a_timeout() -> None:
    pair = started(
        1000, loses=lambda segment, copy: segment == 4 and copy <= 2, segments=200, window=20
    )
    assert len(pair.times_ms(4)) == 3
    assert pair.sender.timeouts == 0
    assert pair.sender.finished


def test_a_lost_tail_is_probed_for_after_two_round_trips() -> None:
    """RFC 8985, section 7: the last segment again; its acknowledgement shows the loss before it."""
    pair = started(400, loses=first_copies(28, 29), segments=30, window=30)
    last, probe = pair.times_ms(29)
    # Two smoothed round trips after the last acknowledgement came, and 2 ms, in whole jiffies.
    assert 40 + 80 + 2 <= probe - last <= 40 + 80 + 2 + 8 + 4
    assert pair.sender.timeouts == 0
    assert pair.sender.finished
    # The probe's acknowledgement, a round trip later, tells of 28.
    assert pair.times_ms(28)[1] == pytest.approx(probe + 40, abs=12)


def test_a_probe_carries_new_data_where_there_is_any() -> None:
    pair = started(300, loses=lambda segment, copy: segment >= 10 and copy == 1 and segment < 20)
    assert pair.sender.timeouts == 0
    # 0 to 9 arrived; all of the 20 that followed but the last ten are lost, so those tell of it.
    assert pair.delivered > 20


def test_the_timeout_doubles() -> None:
    pair = started(9000, loses=lambda segment, copy: segment >= 3, segments=4, window=4)
    gaps = [later - earlier for earlier, later in pairwise(pair.times_ms(3))]
    # One segment is out: the probe waits for a delayed acknowledgement, no longer than a timeout.
    timeout = pair.sender.rtt.smoothed_ns / MS + 200
    assert timeout == pytest.approx(240, abs=5)
    assert gaps[1] == pytest.approx(timeout, abs=40)
    for index, gap in enumerate(gaps[1:], 1):
        assert gap == pytest.approx(timeout * 2 ** (index - 1), rel=0.15)
    assert pair.sender.timeouts == len(gaps) - 1


def test_a_timeout_begins_again_with_one_segment() -> None:
    def loses(segment: int, copy: int) -> bool:
        return 10 <= segment < 40 and pair.clock.now_ns < 300 * MS

    pair = Pair(loses=loses)
    pair.sender.start()
    pair.run(300)
    assert pair.sender.timeouts == 0
    before = pair.sender.congestion.window
    pair.run(430)
    assert pair.sender.timeouts == 1
    assert pair.sender.state.name == "LOSS"
    assert pair.sender.congestion.threshold == before // 2
    assert pair.sender.congestion.window <= 2
    pair.run(2000)
    assert pair.sender.state is not State.LOSS
    assert pair.delivered > 100


def test_a_premature_timeout_is_taken_back() -> None:
    """F-RTO (RFC 5682): what was sent only once arrives after the timeout, so nothing was lost."""
    pair = Pair(window=10, loses_ack=lambda number: True)
    pair.sender.start()
    # The probe after two round trips, and the timeout a timeout later.
    pair.run(80 + 8 + 240 + 12)
    assert pair.sender.timeouts == 1
    assert pair.sender.congestion.window == 1
    assert pair.sender.congestion.threshold == 5
    # The acknowledgements come at last, one by one.
    assert pair.acks[0][1] == Ack(1)
    for _, ack in pair.acks[:10]:
        pair.sender.acknowledge(ack)
    assert pair.sender.state is State.OPEN
    assert pair.sender.congestion.window >= 10


def test_segments_are_acknowledged_one_by_one_at_first_and_then_together() -> None:
    pair = Pair()
    for segment in range(16):
        pair.receiver.receive(segment)
    assert [ack.next_ for _, ack in pair.acks] == list(range(1, 17))
    # One by one, an application has read each segment before the next one comes.
    for segment in range(16, 20):
        pair.receiver.receive(segment)
        pair.run(1 + segment)
    for segment in range(20, 27):
        pair.receiver.receive(segment)
    pair.run(30)
    assert [ack.next_ for _, ack in pair.acks[16:]] == [18, 20, 27]


def test_one_segment_alone_is_acknowledged_within_40_ms() -> None:
    pair = Pair()
    for segment in range(16):
        pair.receiver.receive(segment)
    pair.run(10)
    pair.receiver.receive(16)
    assert len(pair.acks) == 16
    pair.run(100)
    when, ack = pair.acks[16]
    assert ack == Ack(17)
    assert 50 <= when / MS <= 58


def test_segments_that_fill_a_gap_or_come_twice_are_acknowledged_at_once() -> None:
    pair = Pair()
    for segment in (0, 2, 4, 3, 1, 1):
        pair.receiver.receive(segment)
    assert [ack for _, ack in pair.acks] == [
        Ack(1),
        Ack(1, ((2, 3),)),
        Ack(1, ((4, 5), (2, 3))),
        Ack(1, ((2, 5),)),
        Ack(5),
        Ack(5, (), 1),
    ]
    assert pair.delivered == 5


def test_an_acknowledgement_has_at_most_three_blocks() -> None:
    pair = Pair()
    for segment in (2, 4, 6, 8):
        pair.receiver.receive(segment)
    assert pair.acks[-1][1].blocks == ((8, 9), (6, 7), (4, 5))


def test_the_sender_measures_the_round_trip() -> None:
    pair = started(1000, segments=500)
    assert pair.sender.rtt.minimum_ns == RTT_NS
    # A delayed acknowledgement adds to it.
    assert RTT_NS <= pair.sender.rtt.smoothed_ns <= 1.5 * RTT_NS
