"""The table of packed rows is a dict, however its keys collide and its buckets split and join."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from drld.requests.buckets.packed_rows import PackedRows

KEYS = st.one_of(
    st.integers(0, 2**64 - 1),
    # Keys of the same bucket whose bytes repeat, so that a search finds bytes of two keys.
    st.sampled_from([0, 1, 2**8, 2**16, 2**56, 0x0101010101010101, 0x0100000000000001]),
    st.integers(0, 200).map(lambda number: number << 32),
)
STEPS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=4))), max_size=400)


@given(STEPS, st.integers(0, 300))
@settings(deadline=None)
def test_rows_are_those_of_a_dict(steps: list[tuple[int, bytes | None]], fill: int) -> None:
    table, truth = PackedRows(), dict[int, bytes]()
    # A row more or less of these splits or joins a bucket.
    steps = [*((0x9E3779B97F4A7C15 * number % 2**64, b"x") for number in range(fill)), *steps]
    steps += [(key, None) for key, _ in steps]
    for key, row in steps:
        if row is not None:
            table.put(key, row)
            truth[key] = row
        elif key in truth:
            table.drop(key)
            del truth[key]
        assert table.get(key) == truth.get(key)
        assert len(table) == len(truth)
        if len(truth) % 50 == 0:
            assert sorted(table) == sorted(truth)
            assert dict(table.turn(10**9)) == truth
            assert all(table.get(each) == its for each, its in truth.items())
    assert not truth


@given(st.sets(KEYS, max_size=300), st.integers(1, 40))
def test_turns_visit_every_row_once_and_no_more_rows_than_asked_for(
    keys: set[int], rows: int
) -> None:
    table = PackedRows()
    for key in keys:
        table.put(key, b"")
    seen: Counter[int] = Counter()
    asked = visited = 0
    while visited < len(keys):
        asked += rows
        found = table.turn(rows)
        assert not found or visited < asked, "only the last bucket may go beyond"
        seen.update(key for key, _ in found)
        visited += len(found)
        assert visited >= min(asked, len(keys))
    # The last turn may begin another round.
    assert {*seen} == keys
