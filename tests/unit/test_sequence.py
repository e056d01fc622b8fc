"""Sequence numbers at both ends: gaps, lateness, wraparound, new sessions."""

import pytest

from drld.gossip.sequence import (
    LEAP,
    MODULUS,
    Acceptance,
    Numbering,
    Sequences,
    serial_distance,
)

LATE = None


def verdicts(*numbers: int) -> list[int | None]:
    """What each in turn says was lost."""
    sequences = Sequences()
    accepted = [sequences.accept(number) for number in numbers]
    return [None if acceptance is None else acceptance.lost for acceptance in accepted]


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
    assert verdicts(0, 1, 2) == [0, 0, 0]


def test_the_first_number_says_nothing_of_losses() -> None:
    assert verdicts(LEAP - 1, LEAP + 1) == [0, 1]


def test_a_leap_is_believed_at_the_second_number() -> None:
    assert verdicts(0, LEAP, LEAP + LEAP + 1) == [0, LEAP - 1, LATE]
    assert verdicts(0, 1000, 1001, 1002) == [0, LATE, 1000, 0]
    assert verdicts(1000, 1003, 1004) == [LATE, 0, 0]


def test_one_forged_number_keeps_nothing_out_for_long() -> None:
    assert verdicts(0, 2**31 - 1, 1, 2, 10**6, 3) == [0, LATE, 0, 0, LATE, 0]
    assert verdicts(2**31 - 1, 0, 1) == [LATE, 0, 0]
    farthest = verdicts(0, LEAP, *range(1, LEAP + 2))
    assert farthest == [0, LEAP - 1, *([LATE] * LEAP), 0]


def test_numbers_that_do_not_follow_one_another_prove_nothing() -> None:
    assert verdicts(0, 1000, 2000, 1001, 3000, 1) == [0, LATE, LATE, LATE, LATE, 0]
    assert verdicts(0, 1000, 1000, 999, 1) == [0, LATE, LATE, LATE, 0]


def test_a_gap_is_counted() -> None:
    assert verdicts(0, 4, 5) == [0, 3, 0]


def test_duplicates_and_overtaken_ones_are_discarded() -> None:
    assert verdicts(0, 0, 3, 1, 3, 2, 4) == [0, LATE, 2, LATE, LATE, LATE, 0]


def test_the_counter_wraps() -> None:
    sequences = Sequences()
    for number in (2**30, 2**30 + 1, 2**31, 2**31 + 1, 2**31 + 2**30, 2**31 + 2**30 + 1):
        sequences.accept(number)
    for number in (MODULUS - 2, MODULUS - 1):
        sequences.accept(number)
    accepted = [sequences.accept(number) for number in (0, MODULUS - 1, 2)]
    assert accepted == [Acceptance(0), None, Acceptance(1)]
    sequences._next = MODULUS - 1
    assert [sequences.take() for _ in range(2)] == [MODULUS - 1, 0]


def test_a_run_of_old_numbers_is_a_replay_and_no_restart() -> None:
    assert verdicts(999, 1000, *range(100), 1001) == [LATE, 0, *([LATE] * 100), 0]


def test_what_is_sent_is_counted_from_zero() -> None:
    sequences = Sequences()
    assert [sequences.take() for _ in range(3)] == [0, 1, 2]


def test_a_limit_has_its_numbers_whoever_asks_for_them() -> None:
    numbering = Numbering()
    assert numbering.of("a", 1).take() == 0
    assert numbering.of("a", 1).take() == 1
    assert numbering.of("a", 2).take() == 0
    assert numbering.of("b", 1).take() == 0


def test_all_numbers_of_a_peer_that_is_met_begin_anew_and_no_others() -> None:
    numbering = Numbering()
    held = numbering.of("a", 1)
    for peer, limit in (("a", 1), ("a", 2), ("b", 1)):
        numbering.of(peer, limit).take()
        numbering.of(peer, limit).accept(10)
    numbering.meet("a")
    numbering.meet("nobody")
    assert numbering.of("a", 1) is held
    assert [numbering.of("a", limit).take() for limit in (1, 2)] == [0, 0]
    assert held.accept(0) is not None
    assert numbering.of("b", 1).take() == 1
    assert numbering.of("b", 1).accept(0) is None


def test_who_is_removed_is_forgotten() -> None:
    numbering = Numbering()
    for peer in ("a", "b"):
        numbering.of(peer, 1).take()
    numbering.retain(["a"])
    assert numbering.of("a", 1).take() == 1
    assert numbering.of("b", 1).take() == 0
