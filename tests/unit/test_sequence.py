"""Sequence numbers at both ends: gaps, lateness, wraparound, new sessions."""

import pytest

from drld.gossip.wire.sequence import (
    MAX_JUMP,
    MODULUS,
    WINDOW,
    Numbering,
    PeerSequence,
    Refusal,
    Sequences,
    serial_distance,
)

LATE = Refusal.LATE
AGAIN = Refusal.REPLAYED


def verdicts(*numbers: int) -> list[int | Refusal]:
    """The result of `accept` for each number in turn."""
    sequences = Sequences()
    return [sequences.accept(number) for number in numbers]


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
def test_the_serial_distance_wraps(number: int, reference: int, distance: int) -> None:
    assert serial_distance(number, reference) == distance


@pytest.mark.parametrize(
    ("numbers", "judged"),
    [
        pytest.param([0, 1, 2], [0, 0, 0], id="in order"),
        pytest.param([0, 4, 5], [0, 3, 0], id="a gap"),
        pytest.param(
            [MAX_JUMP - 1, MAX_JUMP + 1], [0, 1], id="the first number says nothing of losses"
        ),
        # A leap is believed at the second number.
        ([0, MAX_JUMP, MAX_JUMP + MAX_JUMP + 1], [0, MAX_JUMP - 1, LATE]),
        ([0, 1000, 1001, 1002], [0, LATE, 1000, 0]),
        ([1000, 1003, 1004], [LATE, 0, 0]),
        # One forged number keeps nothing out for long.
        ([0, 2**31 - 1, 1, 2, 10**6, 3], [0, LATE, 0, 0, LATE, 0]),
        ([2**31 - 1, 0, 1], [LATE, 0, 0]),
        pytest.param(
            [0, MAX_JUMP, *range(1, MAX_JUMP + 2)],
            [0, MAX_JUMP - 1, *([LATE] * (MAX_JUMP - 1)), AGAIN, 0],
            id="the farthest that is forged",
        ),
        # Numbers that do not follow one another prove nothing.
        ([0, 1000, 2000, 1001, 3000, 1], [0, LATE, AGAIN, AGAIN, AGAIN, 0]),
        ([0, 1000, 1000, 999, 1], [0, LATE, AGAIN, AGAIN, 0]),
        ([0, 1000, 2000, 2001, 3000, 3001], [0, LATE, AGAIN, 2000, LATE, 999]),  # two outages
        # An overtaken number is late once, and a replay after that.
        ([0, 0, 3, 1, 3, 2, 4], [0, AGAIN, 2, LATE, AGAIN, LATE, 0]),
        ([0, 3, 1, 1, 2, 2, 0, 3], [0, 2, LATE, AGAIN, LATE, AGAIN, AGAIN, AGAIN]),
        ([5, 6, 4, 4], [0, 0, LATE, AGAIN]),
        # A leap is no overtaking, and a number that was not believed has not come.
        ([0, 1000, 1001, 1000], [0, LATE, 1000, LATE]),
        pytest.param(
            [999, 1000, *range(100), 1001],
            [LATE, 0, *([AGAIN] * 100), 0],
            id="a run of old numbers is no restart",
        ),
    ],
)
def test_numbers_are_accepted_lost_or_refused(
    numbers: list[int], judged: list[int | Refusal]
) -> None:
    assert verdicts(*numbers) == judged


def test_after_an_outage_all_limits_may_leap_as_far_as_it_was_long() -> None:
    peer = PeerSequence()
    limits = [Sequences(peer) for _ in range(4)]
    assert [limit.accept(0, 7) for limit in limits] == [0] * 4
    assert [limit.accept(50, 57) for limit in limits[:3]] == [49] * 3
    assert limits[0].accept(50 + MAX_JUMP + 1, 57) is Refusal.LATE
    assert limits[1].accept(50 + MAX_JUMP + 2, 59) is Refusal.LATE
    # What has not been heard of since leaps later.
    assert limits[3].accept(53, 60) == 52


def test_a_limit_that_was_not_spoken_of_has_no_numbers_to_leap_over() -> None:
    peer = PeerSequence()
    quiet, busy = Sequences(peer), Sequences(peer)
    quiet.accept(0, 0)
    for number in range(100):
        busy.accept(number, number)
    assert quiet.accept(MAX_JUMP + 1, 99) is Refusal.LATE
    assert quiet.accept(1, 100) == 0
    # Nor has a limit that is unknown here, whose rounds are not counted.
    assert Sequences(peer).accept(MAX_JUMP + 1) is Refusal.LATE


def test_longer_rounds_after_a_reload_restart_the_count() -> None:
    sequences = Numbering().of("b", 1)
    for number in range(100):
        sequences.accept(number, 1000 + number)
    for number in range(100, 110):
        assert sequences.accept(number, number) == 0
    # Nothing came in 30 rounds.
    assert sequences.accept(140, 140) == 30


def test_a_number_older_than_the_window_is_a_replay() -> None:
    newest = 2 * WINDOW
    start = [*range(0, newest, MAX_JUMP), newest]
    known = len(start)
    assert verdicts(*start, newest - WINDOW + 1, newest - WINDOW)[known:] == [LATE, AGAIN]
    assert verdicts(*start, newest - WINDOW - 1, 1, 2**31 + newest)[known:] == [AGAIN] * 3
    # What has come is remembered when others have come since, and as long as it is in the window.
    one_by_one = [*range(WINDOW + 10)]
    assert verdicts(*one_by_one, *one_by_one)[WINDOW + 10 :] == [AGAIN] * (WINDOW + 10)
    assert verdicts(*range(0, WINDOW, 2), *range(1, WINDOW, 2))[WINDOW // 2 :] == [
        *([LATE] * (WINDOW // 2 - 1)),
        0,
    ]


def test_each_replay_of_any_limit_is_told_once() -> None:
    replays: list[int] = []
    numbering = Numbering(lambda: replays.append(number))
    for number in (0, 2, 1, 1, 0):
        for limit in (1, 2):
            numbering.of("a", limit).accept(number)
    numbering.meet("a")
    numbering.of("a", 1).accept(0)
    assert replays == [1, 1, 0, 0]


def test_the_counter_wraps() -> None:
    sequences = Sequences()
    for number in (2**30, 2**30 + 1, 2**31, 2**31 + 1, 2**31 + 2**30, 2**31 + 2**30 + 1):
        sequences.accept(number)
    for number in (MODULUS - 2, MODULUS - 1):
        sequences.accept(number)
    accepted = [sequences.accept(number) for number in (0, MODULUS - 1, 2)]
    assert accepted == [0, Refusal.REPLAYED, 1]
    sequences._next = MODULUS - 1
    assert [sequences.take() for _ in range(2)] == [MODULUS - 1, 0]


def test_a_limit_always_has_the_same_numbers() -> None:
    numbering = Numbering()
    assert numbering.of("a", 1).take() == 0
    assert numbering.of("a", 1).take() == 1
    assert numbering.of("a", 2).take() == 0
    assert numbering.of("b", 1).take() == 0


def test_a_peer_that_is_met_restarts_its_own_numbers_and_no_others() -> None:
    numbering = Numbering()
    held = numbering.of("a", 1)
    for peer, limit in (("a", 1), ("a", 2), ("b", 1)):
        numbering.of(peer, limit).take()
        numbering.of(peer, limit).accept(MAX_JUMP - 1)
    assert numbering.meet("a") == [1, 2]
    assert numbering.meet("nobody") == []
    assert numbering.of("a", 1) is held
    assert [numbering.of("a", limit).take() for limit in (1, 2)] == [0, 0]
    assert held.accept(0) == 0
    assert numbering.of("b", 1).take() == 1
    assert numbering.of("b", 1).accept(0) is Refusal.LATE


def test_a_session_costs_as_much_as_was_used_in_the_one_before() -> None:
    """The cost does not depend on the number of limits, nor of the peer's sessions."""
    numbering = Numbering()
    limits = [numbering.of("a", limit) for limit in range(1000)]
    for sequences in limits:
        sequences.take()
    assert numbering.meet("a") == list(range(1000))
    assert numbering.meet("a") == []
    assert [limits[7].take() for _ in range(3)] == [0, 1, 2]
    limits[8].accept(0)
    limits[9].use()
    assert numbering.meet("a") == [7, 8, 9]
    assert limits[8].accept(0) == 0


def test_a_removed_peer_is_forgotten() -> None:
    numbering = Numbering()
    for peer in ("a", "b"):
        numbering.of(peer, 1).take()
    numbering.retain(["a"])
    assert numbering.of("a", 1).take() == 1
    assert numbering.of("b", 1).take() == 0
