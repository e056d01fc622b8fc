"""Sequence numbers under any loss, duplication and bounded reordering."""

from hypothesis import given
from hypothesis import strategies as st

from drld.gossip.sequence import MODULUS, SequenceReceiver, serial_distance

starts = st.sampled_from([0, 1, 1000, 2**31 - 5, MODULUS - 7, MODULUS - 1])


@given(start=starts, gaps=st.lists(st.integers(1, 50), min_size=5))
def test_accepted_and_lost_make_up_the_distance(start: int, gaps: list[int]) -> None:
    receiver = SequenceReceiver()
    receiver.accept(start)
    newest = start
    accounted = 0
    for gap in gaps:
        newest = (newest + gap) % MODULUS
        acceptance = receiver.accept(newest)
        assert acceptance == (gap - 1, False)
        accounted += 1 + acceptance.lost
    assert accounted == sum(gaps)


@given(
    start=starts,
    order=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), min_size=10, max_size=60),
)
def test_no_number_is_accepted_twice(start: int, order: list[tuple[int, int]]) -> None:
    """Packets are delayed by up to 3 places: too little for anything to look like a restart."""
    sent = sorted((index + delay, index) for index, (_, delay) in enumerate(order))
    copies = [index for _, index in sent for _ in range(1 + (order[index][0] > 50))]
    receiver = SequenceReceiver()
    accepted = []
    accounted = 0
    for index in copies:
        acceptance = receiver.accept((start + index) % MODULUS)
        if acceptance is not None:
            assert not acceptance.restarted
            accepted.append(index)
            accounted += 1 + acceptance.lost
    assert accepted == sorted(set(accepted))
    if accepted:
        assert accounted == accepted[-1] - accepted[0] + 1


@given(
    old=st.integers(0, 2**31 - 1),
    pattern=st.lists(st.booleans(), min_size=40, max_size=40).filter(lambda kept: sum(kept) >= 8),
)
def test_a_restarted_peer_is_accepted_within_a_few_updates(old: int, pattern: list[bool]) -> None:
    """Whatever the old counter was: of the updates that arrive, at most 16 + 4 are discarded."""
    receiver = SequenceReceiver()
    receiver.accept(old)
    arriving = [index for index, kept in enumerate(pattern) if kept]
    accepted = [index for index in arriving if receiver.accept(index) is not None]
    assert accepted
    assert arriving.index(accepted[0]) <= 3
    assert accepted == arriving[arriving.index(accepted[0]) :]


@given(st.integers(0, MODULUS - 1), st.integers(0, MODULUS - 1))
def test_serial_distance_is_antisymmetric(a: int, b: int) -> None:
    forth, back = serial_distance(a, b), serial_distance(b, a)
    assert forth == -back or forth == back == -(2**31)
