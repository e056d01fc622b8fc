"""Compact rows of the ledger decide as its definition does, whatever becomes of them."""

from __future__ import annotations

from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from drld.requests.buckets.bucket import News
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import FLOOR, Cell
from drld.requests.buckets.ledger_shape import SLOTS
from drld.requests.buckets.policy import Policy
from tests.reference_ledger import ReferenceLedger

MS = 1_000_000
S = 1000 * MS
INTERVAL_NS = 300 * MS
OPERATIONS = 150
ORIGINS = 3
POLICIES = (
    Policy(5, 1), Policy(300, 3, 10 * S), Policy(50, 100), Policy(40, 7),
    # 64 bits do not hold its ticks.
    Policy(1000, 999_999_937, 3600 * S),
)  # fmt: skip


def reference(policy: Policy, origin: int, interval_ns: int, margin_ns: int) -> ReferenceLedger:
    return ReferenceLedger(policy, origin, interval_ns, margin_ns)


def as_rows_have_it(news: News) -> News:
    return {origin * SLOTS + slot: count for (origin, slot), count in news.items()}


def compare(policy: Policy, margin_ns: int, rng: Random, operations: int) -> None:
    """Random operations on a row of each of some origins, and on the definition."""
    rows = [Ledger(policy, origin, INTERVAL_NS, margin_ns) for origin in range(ORIGINS)]
    truths = [reference(policy, origin, INTERVAL_NS, margin_ns) for origin in range(ORIGINS)]
    under_way: list[tuple[int, tuple[Cell, ...]]] = []
    late = [0] * ORIGINS
    now_ns, fill_ns = 10**6 * S, policy.fill_ns
    for _ in range(operations):
        now_ns += rng.choice((0, 0, 1, 7 * MS, 40 * MS, INTERVAL_NS, 2 * S, rng.randrange(fill_ns)))
        if rng.random() < 0.01:
            now_ns += 2 * (fill_ns + margin_ns)
        at = rng.randrange(ORIGINS)
        row, truth = rows[at], truths[at]
        what = rng.random()
        if what < 0.5:
            cost = rng.randint(1, min(policy.capacity, 5))
            looked = row.decide(now_ns, cost)
            taken, expected = row.take(now_ns, cost), truth.take(now_ns, cost)
            assert looked == taken[0] == expected[0]
            assert taken[1] == as_rows_have_it(expected[1])
        elif what < 0.55:
            cost = rng.randint(1, 2 * policy.capacity)
            assert row.charge(now_ns, cost) == as_rows_have_it(truth.charge(now_ns, cost))
        elif what < 0.75:
            assert not row.idle(now_ns) or truth.idle(now_ns)
            for both in (row, truth):
                both.merge((), now_ns)  # It folds what is too old.
            # The definition sends no floor: it is for limiters that know nothing.
            everything = {it: count for it, count in row.everything().items() if it != FLOOR}
            delta = row.delta(everything, now_ns)
            assert sorted(delta) == sorted(truth.delta(truth.everything(), now_ns))
            under_way.append((now_ns, delta))
        elif what < 0.95 and under_way:
            # Late, again, out of order; ages are measured, but for what the path took at the end.
            sent_ns, delta = rng.choice(under_way[-20:])
            late_ms = (now_ns - sent_ns) // MS
            some = rng.sample(delta, rng.randint(0, len(delta)))
            aged = tuple(cell._replace(age_ms=cell.age_ms + late_ms) for cell in some)
            truth.idle(now_ns)  # Both have folded what is too old by now.
            news, has = row.merge(aged, now_ns)
            expected_news, expected_has = truth.merge(aged, now_ns)
            assert news == as_rows_have_it(expected_news)
            assert has == as_rows_have_it(expected_has)
        elif (data := row.freeze(now_ns)) is not None:
            assert row.idle_at_rest(data, now_ns) == truth.idle(now_ns)
            late[at] += row.late
            rows[at] = row = row.thaw(data)
        assert row.level(now_ns) == truth.level(now_ns)
        assert late[at] + row.late == truth.refused
        if truth.idle(now_ns):
            # It may leave: a new one decides the same.
            assert row.idle(now_ns)
            late[at] = 0
            rows[at] = Ledger(policy, at, INTERVAL_NS, margin_ns)
            truths[at] = reference(policy, at, INTERVAL_NS, margin_ns)


@given(st.sampled_from(POLICIES), st.sampled_from([S, 9 * S]), st.integers(0, 2**32))
def test_a_row_is_the_ledger_of_the_definition(policy: Policy, margin_ns: int, seed: int) -> None:
    compare(policy, margin_ns, Random(seed), OPERATIONS)


@given(st.sampled_from(POLICIES), st.sampled_from([S, 9 * S]), st.integers(0, 2**32))
# A floor is drained while all cells are young.
@example(POLICIES[1], 9 * S, 62)
def test_a_row_at_rest_takes_a_cell_as_if_it_were_unpacked(
    policy: Policy, margin_ns: int, seed: int
) -> None:
    rng = Random(seed)
    row = Ledger(policy, 0, INTERVAL_NS, margin_ns)
    now_ns, slot_ns = 10**6 * S, row._shape.slot_ns
    life_ns = row._shape.horizon // row._shape.rate
    # One large debt would hide all floors.
    most = rng.choice((1, 2, 300, 70_000))
    row.charge(now_ns, 1)
    for _ in range(rng.randrange(12)):
        cell = Cell(rng.randrange(1, 2**32), rng.randrange(SLOTS), rng.randint(1, 300), 0)
        row.merge((cell,), now_ns)
    now_ns += slot_ns
    data = row.freeze(now_ns)
    for _ in range(20):
        if data is None:
            break
        # Also before the last cell: clocks may go back.
        now_ns += rng.choice((0, 1, -2 * slot_ns, 40 * slot_ns, rng.randrange(life_ns // 3)))
        packed, unpacked = row.thaw(data), row.thaw(data)
        unpacked._all()
        cost = rng.randint(1, most)
        for each in (packed, unpacked):
            each.charge(now_ns, cost)
            if seed % 2:
                each.told()
        now_ns += slot_ns + rng.choice((0, 0, 0, S, 2 * slot_ns, rng.randrange(life_ns)))
        data = unpacked.freeze(now_ns)
        assert packed.freeze(now_ns) == data
