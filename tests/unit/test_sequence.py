"""Sequence numbers at the receiving end: gaps, lateness, wraparound, restarts."""

import pytest

from drld.gossip.sequence import (
    MODULUS,
    REORDER_WINDOW,
    RESTART_RUN,
    Acceptance,
    SequenceReceiver,
    serial_distance,
)

LATE = None


def verdicts(*sequences: int) -> list[tuple[int, bool] | None]:
    """(lost, restarted) of each in turn."""
    receiver = SequenceReceiver()
    return [receiver.accept(sequence) for sequence in sequences]


@pytest.mark.parametrize(
    ("number", "reference", "distance"),
    [
        (5, 3, 2),
        (3, 5, -2),
        (7, 7, 0),
        (0, MODULUS - 1, 1),
        (MODULUS - 1, 0, -1),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31, 0, -(2**31)),
    ],
)
def test_serial_distance(number: int, reference: int, distance: int) -> None:
    assert serial_distance(number, reference) == distance


def test_in_order() -> None:
    assert verdicts(0, 1, 2) == [(0, False)] * 3


def test_the_first_number_says_nothing_of_losses() -> None:
    assert verdicts(1000) == [(0, False)]


def test_a_gap_is_counted() -> None:
    assert verdicts(0, 4, 5) == [(0, False), (3, False), (0, False)]


def test_duplicates_and_overtaken_ones_are_discarded() -> None:
    assert verdicts(0, 0, 3, 1, 3, 2, 4) == [
        (0, False),
        LATE,
        (2, False),
        LATE,
        LATE,
        LATE,
        (0, False),
    ]


def test_the_counter_wraps() -> None:
    assert verdicts(MODULUS - 2, MODULUS - 1, 0, MODULUS - 1, 2) == [
        (0, False),
        (0, False),
        (0, False),
        LATE,
        (1, False),
    ]


def test_a_restart_far_back_takes_two() -> None:
    assert verdicts(1000, 0, 1, 2) == [(0, False), LATE, (0, True), (0, False)]


def test_a_restart_is_seen_across_its_own_losses() -> None:
    assert verdicts(1000, 3, 7, 8) == [(0, False), LATE, (0, True), (0, False)]


def test_one_stray_old_packet_is_no_restart() -> None:
    assert verdicts(1000, 3, 1001, 4, 1002, 5, 1003) == [
        (0, False),
        LATE,
        (0, False),
        LATE,
        (0, False),
        LATE,
        (0, False),
    ]


def test_two_stray_copies_of_one_packet_are_no_restart() -> None:
    assert verdicts(1000, 3, 3, 1001) == [(0, False), LATE, LATE, (0, False)]


def test_two_strays_of_different_times_are_no_restart() -> None:
    assert verdicts(1000, 3, 3 + REORDER_WINDOW + 1, 1001) == [(0, False), LATE, LATE, (0, False)]


def test_a_short_run_nearby_is_reordering() -> None:
    run = range(10 - RESTART_RUN, 9)
    assert verdicts(10, *run, 11) == [(0, False), *([LATE] * len(run)), (0, False)]


def test_a_restart_nearby_takes_a_longer_run() -> None:
    run = range(RESTART_RUN)
    assert verdicts(10, *run, RESTART_RUN) == [
        (0, False),
        *([LATE] * (RESTART_RUN - 1)),
        Acceptance(lost=0, restarted=True),
        (0, False),
    ]


def test_what_is_exactly_a_window_behind_counts_as_reordered() -> None:
    assert verdicts(100, 100 - REORDER_WINDOW, 101 - REORDER_WINDOW) == [(0, False), LATE, LATE]
