"""The ledger's laws, its bound, and that every bucket alone is GCRA."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.counter import Counter
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, of_sender, parts
from drld.requests.buckets.gcra import Gcra
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.queue import Queue
from drld.requests.buckets.replica import Message
from testbed.requests.oracle import TokenBucket

MS = 1_000_000
S = 1000 * MS
EPOCH_MS = 10**6
INTERVAL_MS = 300

gaps_ms = st.sampled_from([0, 1, 40, 299, 300, 301, 1000, 5000])
policies = st.builds(
    Policy,
    st.integers(1, 9),
    st.integers(1, 7),
    st.sampled_from([S, 10 * S, 700 * MS, S // 100]),
)
takes = st.lists(st.tuples(gaps_ms, st.integers(0, 2), st.integers(1, 3)), max_size=25)
"""Gap before it, origin, cost."""
WIDE = Policy(1000, 1, 200 * MS)
"""All requests of a test pass, and a token takes whole ms, so that ages are exact."""


def ticks(policy: Policy, level: float) -> int:
    """A level as the bucket has it: levels in tokens are rounded, and sums of them differ."""
    return round(level * policy.per_ns)


def ledger(policy: Policy, origin: int) -> Ledger:
    return Ledger(policy, origin, INTERVAL_MS * MS, 20 * S)


def aged(delta: tuple[Cell, ...], by_ms: int) -> tuple[Cell, ...]:
    """A delta as it is when it was under way for so long, and that was measured."""
    return tuple(cell._replace(age_ms=cell.age_ms + by_ms) for cell in delta)


def history(steps: list[tuple[int, int, int]]) -> tuple[list[tuple[int, tuple[Cell, ...]]], int]:
    """The deltas of three origins, (ms, delta) after each request, and the end, ms."""
    origins = [ledger(WIDE, origin) for origin in range(3)]
    told, now_ms = [], EPOCH_MS
    for gap_ms, origin, cost in steps:
        now_ms += gap_ms
        _, news = origins[origin].take(now_ms * MS, cost)
        told.append((now_ms, origins[origin].delta(news, now_ms * MS)))
    return told, now_ms


def state(bucket: Ledger, now_ms: int) -> tuple[float, list[Cell]]:
    now_ns = now_ms * MS
    return bucket.level(now_ns), sorted(bucket.delta(bucket.everything(), now_ns))


@given(steps=takes, data=st.data())
def test_any_order_and_repetition_give_the_same_ledger(
    steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    told, end_ms = history(steps)
    in_order, another = ledger(WIDE, 8), ledger(WIDE, 9)
    for at_ms, delta in told:
        in_order.merge(aged(delta, end_ms - at_ms), end_ms * MS)
    again = data.draw(st.lists(st.sampled_from(told), max_size=10)) if told else []
    for at_ms, delta in data.draw(st.permutations([*told, *again])):
        another.merge(aged(delta, end_ms - at_ms), end_ms * MS)
    assert state(in_order, end_ms) == state(another, end_ms)


@given(st.tuples(takes, takes, takes))
def test_a_merge_is_idempotent_commutative_associative_and_inflationary(
    steps: tuple[list[tuple[int, int, int]], ...],
) -> None:
    now_ms = EPOCH_MS + 100_000
    # Parts of one history, so that they share cells with different counts.
    told, end_ms = history([step for some in steps for step in some])
    bounds = list(itertools.accumulate(map(len, steps)))
    some = [told[: bounds[0]], told[: bounds[1]], told[bounds[0] :]]
    deltas = [
        tuple(cell for at_ms, delta in one for cell in aged(delta, now_ms - at_ms)) for one in some
    ]
    now_ms = max(now_ms, end_ms)

    def joined(*numbers: int) -> tuple[float, list[Cell]]:
        bucket = ledger(WIDE, 9)
        for number in numbers:
            before = dict(bucket.everything())
            bucket.merge(deltas[number], now_ms * MS)
            after = bucket.everything()
            assert all(after[cell] >= tokens for cell, tokens in before.items())
        return state(bucket, now_ms)

    assert joined(0) == joined(0, 0)
    assert joined(0, 1) == joined(1, 0)
    assert joined(0, 1, 2) == joined(1, 2, 0) == joined(2, 0, 1, 1)


@given(policies, takes)
def test_each_bucket_alone_is_gcra_and_the_oracle(
    policy: Policy, steps: list[tuple[int, int, int]]
) -> None:
    buckets: list[Bucket] = [Counter(policy, 1), Queue(policy, 1), ledger(policy, 1)]
    gcra = Gcra(policy)
    oracle = TokenBucket(policy.capacity, Fraction(policy.rate * S, policy.per_ns))
    now_ms = EPOCH_MS
    for gap_ms, _, asked in steps:
        now_ms += gap_ms
        cost = min(asked, policy.capacity)
        decision = gcra.take(now_ms * MS, cost)
        oracle.refill(now_ms)
        assert decision.admitted == (oracle.tokens >= cost)
        for _ in range(cost if decision.admitted else 0):
            assert oracle.take(now_ms)
        for bucket in buckets:
            assert bucket.take(now_ms * MS, cost)[0] == decision
            assert bucket.level(now_ms * MS) == pytest.approx(gcra.level(now_ms * MS))


@given(policies, takes)
def test_with_full_knowledge_and_slots_that_do_not_overlap_the_ledger_is_gcra(
    policy: Policy, steps: list[tuple[int, int, int]]
) -> None:
    """A token takes fractions of a ms here, so an age may be rounded down: a ms at each hop."""
    origins = [ledger(policy, origin) for origin in range(3)]
    gcra = Gcra(Policy(policy.capacity, policy.rate, policy.per_ns))
    now_ms, last = EPOCH_MS, 0
    exact = policy.per_ns % (policy.rate * MS) == 0
    for gap_ms, origin, asked in steps:
        now_ms += gap_ms if origin == last else max(gap_ms, INTERVAL_MS)
        last, cost = origin, min(asked, policy.capacity)
        taken = origins[origin].take(now_ms * MS, cost)
        if exact:
            assert taken[0] == gcra.take(now_ms * MS, cost)
        delta = origins[origin].delta(taken[1], now_ms * MS)
        for other in origins:
            other.merge(delta, now_ms * MS)
        levels = {ticks(policy, other.level(now_ms * MS)) for other in origins}
        assert max(levels) - min(levels) <= 3 * policy.rate * MS


@given(takes)
def test_the_fold_is_never_below_the_level_and_at_most_two_slots_above(
    steps: list[tuple[int, int, int]],
) -> None:
    told, end_ms = history(steps)
    gcra = Gcra(WIDE)
    bucket = ledger(WIDE, 9)
    now_ms = EPOCH_MS
    for (gap_ms, _, cost), (at_ms, delta) in zip(steps, told, strict=True):
        now_ms += gap_ms
        gcra.take(now_ms * MS, cost)
        bucket.merge(delta, at_ms * MS)
        least = ticks(WIDE, gcra.level(now_ms * MS))
        assert (
            0 <= ticks(WIDE, bucket.level(now_ms * MS)) - least <= 2 * INTERVAL_MS * MS * WIDE.rate
        )
    assert now_ms == end_ms


@given(takes, st.integers(-3600, 3600), st.integers(0, 50))
def test_a_wrong_clock_and_a_delay_change_nothing_but_towards_fuller(
    steps: list[tuple[int, int, int]], offset_s: int, delay_ms: int
) -> None:
    told, end_ms = history(steps)
    right, wrong, late = (ledger(WIDE, 9) for _ in range(3))
    for at_ms, delta in told:
        right.merge(delta, at_ms * MS)
        wrong.merge(delta, at_ms * MS + offset_s * S)
        late.merge(delta, (at_ms + delay_ms) * MS)
    now_ns = (end_ms + delay_ms) * MS
    assert right.level(now_ns) == wrong.level(now_ns + offset_s * S)
    fuller = ticks(WIDE, late.level(now_ns)) - ticks(WIDE, right.level(now_ns))
    assert 0 <= fuller <= delay_ms * MS * WIDE.rate


@given(takes, st.sampled_from([Form.COUNTER, Form.QUEUE, Form.LEDGER]))
def test_decoded_entries_are_those_that_were_encoded(
    steps: list[tuple[int, int, int]], form: Form
) -> None:
    makes: dict[Form, Callable[[int], Bucket]] = {
        Form.COUNTER: lambda origin: Counter(WIDE, origin),
        Form.QUEUE: lambda origin: Queue(WIDE, origin),
        Form.LEDGER: lambda origin: ledger(WIDE, origin),
    }
    bucket, direct, decoded = (makes[form](origin) for origin in (1, 2, 2))
    now_ms = EPOCH_MS
    for gap_ms, _, cost in steps:
        now_ms += gap_ms
        bucket.take(now_ms * MS, cost)
    now_ns = now_ms * MS
    delta = bucket.delta(bucket.everything(), now_ns)
    codec = DeltaCodec(KIND)
    for part in parts(Message(1, {5: delta} if steps else {}), form, 3, 1):
        read = codec.decode_untrusted(codec.encode(part, 0, 1))
        assert read == part
        # As a limiter does, which takes each key of a datagram once.
        for some in dict(of_sender(read, 1)).values():
            decoded.merge(some, now_ns)
    if steps:
        direct.merge(delta, now_ns)
    assert decoded.level(now_ns) == direct.level(now_ns)
    assert decoded.everything() == direct.everything()
