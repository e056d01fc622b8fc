"""Laws of buckets whose excess waits: SRTM's Proposition 1 and Lemma 2, and the arrival curve."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from drld.messages.hold import Hold
from drld.model import Enforcement

MESSAGE = 1_000_000
MS = 1_000_000
PER_MS = 1_000_000_000
"""A rate, tokens/s: a message in a millisecond."""

Arrivals = list[tuple[int, int]]
"""Times, ms, and the sub-bucket of each message."""

arrivals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=40).map(
    sorted
)
buckets = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=3, max_size=3)
"""Rate, messages a millisecond over 4, and depth, messages, of three sub-buckets."""


def leaving(found: Arrivals, rate: int, depth: int) -> list[tuple[int, int]]:
    """Arrival and leaving time of each message, ns."""
    hold: Hold[int] = Hold(Enforcement(fill_rate=rate * PER_MS // 4, depth=depth * MESSAGE), 0)
    times = []
    for at_ms, _ in found:
        if hold.offer(at_ms * MS, at_ms * MS):
            times.append((at_ms * MS, at_ms * MS))
    while (due_ns := hold.due_ns) is not None:
        times += [(it.message, it.message + it.waited_ns) for it in hold.release(due_ns)]
    return times


def split(found: Arrivals, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same of sub-buckets."""
    return [
        times
        for number, (rate, depth) in enumerate(parts)
        for times in leaving([it for it in found if it[1] == number], rate, depth)
    ]


def behind(found: Arrivals, parts: list[tuple[int, int]], token_late: bool = False) -> int:
    """How far one bucket's i-th departure is behind that of its parts, at the worst i, ns.

    As many messages have arrived at both, so one bucket never has more waiting if none is behind.
    `token_late`: those that wait in it leave later by the time of one of its tokens.
    """
    rate = sum(rate for rate, _ in parts)
    token_ns = 4 * MS // rate if token_late else 0
    whole = sorted(
        left + token_ns if left > at else left
        for at, left in leaving(found, rate, sum(depth for _, depth in parts))
    )
    divided = sorted(left for _, left in split(found, parts))
    return max(one - other for one, other in zip(whole, divided, strict=True))


def drawn(rng: Random) -> tuple[Arrivals, list[tuple[int, int]]]:
    """Up to 80 arrivals within up to 40 ms, and three sub-buckets."""
    within_ms = rng.randint(0, 40)
    found = [(rng.randint(0, within_ms), rng.randrange(3)) for _ in range(rng.randint(1, 80))]
    return sorted(found), [(rng.randint(1, 4), rng.randint(1, 6)) for _ in range(3)]


def test_no_split_of_a_bucket_ever_has_fewer_messages_waiting() -> None:
    """Proposition 1, in the form that its proof uses: N(t) <= sum of N_l(t) at all times."""
    rng = Random(1)
    for _ in range(10_000):
        case = drawn(rng)
        assert behind(*case) <= 0, case


def test_the_proposition_fails_for_a_bucket_that_releases_a_token_late() -> None:
    rng = Random(1)
    assert any(behind(*drawn(rng), token_late=True) > 0 for _ in range(100))


@given(found=arrivals, rate=st.integers(1, 6), depth=st.integers(1, 6))
def test_departures_keep_the_arrival_curve_and_the_order(
    found: Arrivals, rate: int, depth: int
) -> None:
    """At most b + r dt messages leave in any time dt; none is lost, and none waits needlessly."""
    times = sorted(leaving(found, rate, depth), key=lambda it: it[1])
    assert sorted(arrived for arrived, _ in times) == [at_ms * MS for at_ms, _ in found]
    assert all(first[0] <= second[0] for first, second in pairwise(times))
    lefts = [left for _, left in times]
    for first, begin in enumerate(lefts):
        for last in range(first, len(lefts)):
            # A release is rounded up to a nanosecond, so no token is taken early.
            count = last - first + 1
            assert (
                count * MESSAGE * 4 * MS
                <= depth * MESSAGE * 4 * MS
                + rate * MESSAGE * (lefts[last] - begin)
                + 4 * rate * MESSAGE
            )


@given(found=arrivals, parts=buckets)
def test_the_backlog_of_a_bucket_is_at_most_that_of_its_parts(
    found: Arrivals, parts: list[tuple[int, int]]
) -> None:
    """Lemma 2: at each arrival the unfinished work is at most the sum over the parts."""
    whole = Hold[int](
        Enforcement(
            fill_rate=sum(rate for rate, _ in parts) * PER_MS // 4,
            depth=sum(depth for _, depth in parts) * MESSAGE,
        ),
        0,
    )
    divided = [
        Hold[int](Enforcement(fill_rate=rate * PER_MS // 4, depth=depth * MESSAGE), 0)
        for rate, depth in parts
    ]
    left: list[tuple[int, int]] = [(0, 0)] * 3
    """Backlog of each part after its last arrival, tokens, and that arrival, ms."""
    for at_ms, part in found:
        whole.offer(0, at_ms * MS)
        divided[part].offer(0, at_ms * MS)
        left[part] = divided[part].take_backlog(), at_ms
        of_parts = sum(
            max(work - parts[number][0] * (at_ms - since_ms) * MESSAGE // 4, 0)
            for number, (work, since_ms) in enumerate(left)
        )
        assert whole.take_backlog() <= of_parts + len(parts)
