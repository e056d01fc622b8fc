"""The table of segments against a table of bytes, whatever TCP does with the segments."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from drld.messages import segments as table
from drld.messages.segments import Segments, Tally
from tests.segments_oracle import Oracle

MS = 1_000_000

firsts = st.integers(0, 2**32 - 1) | st.integers(2**32 - 60, 2**32 - 1)
steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "arrival"]),
        st.integers(-8, 40), st.integers(0, 24), st.integers(0, 20),
    ),
    max_size=60,
)  # fmt: skip
"""A kind of event, an offset from the first byte not yet read, a length, ms since the last."""


def answers(first: int, found: list[tuple[str, int, int, int]]) -> list[tuple[int, int, int]]:
    """The times of each message: the table's, the oracle's, and that of its reading."""
    segments, oracle, now_ns = Segments(first, Tally()), Oracle(), 0
    said = []
    for what, ahead, length, pause_ms in found:
        now_ns += pause_ms * MS
        offset, end = oracle.asked + ahead, oracle.asked + length
        if what == "add":
            segments.add((first + offset) % 2**32, length, now_ns)
            oracle.add(offset, length, now_ns)
            assert len(segments) <= table.MOST
        else:
            said.append((segments.arrival(end, now_ns), oracle.arrival(end, now_ns), now_ns))
    return said


@given(firsts, steps)
def test_a_message_arrives_with_its_last_byte_and_all_before(
    first: int, found: list[tuple[str, int, int, int]]
) -> None:
    assert all(got == wanted for got, wanted, _ in answers(first, found))


@given(firsts, steps, st.integers(1, 4))
def test_a_full_table_makes_times_later_and_never_earlier(
    first: int, found: list[tuple[str, int, int, int]], most: int
) -> None:
    with patch.object(table, "MOST", most):
        for got, wanted, read_ns in answers(first, found):
            assert wanted <= got <= read_ns


@given(firsts, st.lists(st.integers(1, 30), min_size=1, max_size=40), st.data())
def test_times_are_right_in_any_order_of_segments_and_for_any_cut(
    first: int, lengths: list[int], data: st.DataObject
) -> None:
    """Every byte comes once or twice; messages are asked for when all have come."""
    starts = [sum(lengths[:at]) for at in range(len(lengths))]
    pieces = list(zip(starts, lengths, strict=True))
    repeated = data.draw(st.lists(st.sampled_from(pieces), max_size=10))
    oracle, tally = Oracle(), Tally()
    segments = Segments(first, tally)
    for at, (start, length) in enumerate(data.draw(st.permutations(pieces + repeated))):
        segments.add((first + start) % 2**32, length, at * MS)
        oracle.add(start, length, at * MS)
    total = sum(lengths)
    cuts = sorted(data.draw(st.sets(st.integers(1, total), min_size=1, max_size=20)))
    said = [segments.arrival(end, 100 * MS) for end in cuts]
    assert said == [oracle.arrival(end, 100 * MS) for end in cuts] == sorted(said)
    assert (tally.stamped, tally.unstamped) == (len(cuts), 0)
