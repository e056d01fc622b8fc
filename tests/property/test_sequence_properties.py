"""Sequence numbers under any loss, duplication and reordering."""

from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.wire.sequence import (
    MAX_JUMP,
    MODULUS,
    WINDOW,
    Refusal,
    Sequences,
    serial_distance,
)


@given(
    gaps=st.lists(
        st.integers(1, MAX_JUMP) | st.integers(MAX_JUMP + 1, 2**20) | st.integers(2**28, 2**30),
        min_size=5,
    )
)
def test_accepted_and_lost_make_up_the_distance(gaps: list[int]) -> None:
    """Whatever is lost, a leap costs one update, also across the end of the circle."""
    sequences = Sequences()
    first = sequences.accept(0)
    assert first == 0
    number = accounted = 0
    for gap in gaps:
        number += gap
        judged = sequences.accept(number % MODULUS)
        assert (judged is Refusal.LATE) == (gap > MAX_JUMP)
        if gap > MAX_JUMP:
            number += 1
            judged = sequences.accept(number % MODULUS)
        assert not isinstance(judged, Refusal)
        accounted += 1 + judged
    assert accounted == number


@given(order=st.lists(st.integers(0, 60) | st.integers(0, 300), min_size=10, max_size=60))
def test_no_number_is_accepted_twice(order: list[int]) -> None:
    """Whatever arrives, in whatever order and however often."""
    sequences = Sequences()
    accepted = []
    accounted = 0
    for number in order:
        judged = sequences.accept(number)
        if not isinstance(judged, Refusal):
            accepted.append(number)
            accounted += 1 + judged
    assert accepted == sorted(set(accepted))
    if accepted:
        assert accounted == accepted[-1] - accepted[0] + 1
    if max(order) < MAX_JUMP:
        assert accepted[0] == order[0]
        assert accepted[-1] == max(order)


@given(order=st.lists(st.integers(0, 2 * WINDOW), min_size=10, max_size=200))
def test_a_replayed_number_has_come_before_or_is_older_than_the_window(order: list[int]) -> None:
    """Or one more that is too far ahead."""
    sequences = Sequences()
    come: set[int] = set()
    newest = -1
    noted = False
    for number in order:
        judged = sequences.accept(number)
        known = come | set(range(newest - WINDOW + 1))
        if number > newest:
            assert judged is not Refusal.REPLAYED or noted
            assert judged is not Refusal.LATE or not noted
            noted = isinstance(judged, Refusal)
        else:
            assert (judged is Refusal.REPLAYED) == (number in known)
        if not isinstance(judged, Refusal):
            newest = number
        if number <= newest:
            come.add(number)


@given(forged=st.integers(0, MODULUS - 1), before=st.integers(0, 50), place=st.integers(0, 20))
def test_one_forged_number_keeps_out_few(forged: int, before: int, place: int) -> None:
    sequences = Sequences()
    numbers: list[int] = [*range(before + 200)]
    numbers.insert(before + place, forged)
    accepted = [number for number in numbers if not isinstance(sequences.accept(number), Refusal)]
    assert len(set(range(before + 200)) - set(accepted)) <= MAX_JUMP


@given(st.integers(0, MODULUS - 1), st.integers(0, MODULUS - 1))
def test_serial_distance_is_antisymmetric(a: int, b: int) -> None:
    forth, back = serial_distance(a, b), serial_distance(b, a)
    assert forth == -back or forth == back == -(2**31)
