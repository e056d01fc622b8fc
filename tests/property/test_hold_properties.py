"""Laws of buckets whose excess waits: SRTM's Proposition 1 and Lemma 2, and the arrival curve."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

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


def waiting_at(times: list[tuple[int, int]], now_ns: int) -> int:
    return sum(arrived <= now_ns < left for arrived, left in times)


def worst(
    found: Arrivals,
    parts: list[tuple[int, int]],
    delayed: Callable[[list[tuple[int, int]]], list[tuple[int, int]]] = list,
) -> int:
    """How many more messages wait in one bucket than in its parts, at the worst moment."""
    whole = leaving(found, sum(rate for rate, _ in parts), sum(depth for _, depth in parts))
    whole, divided = delayed(whole), split(found, parts)
    moments = {time for times in (*whole, *divided) for time in times}
    return max(waiting_at(whole, now_ns) - waiting_at(divided, now_ns) for now_ns in moments)


@given(found=arrivals, parts=buckets)
def test_no_split_of_a_bucket_ever_has_fewer_messages_waiting(
    found: Arrivals, parts: list[tuple[int, int]]
) -> None:
    """Proposition 1, in the form that its proof uses: N(t) <= sum of N_l(t) at all times."""
    assert worst(found, parts) <= 0


def test_the_proposition_fails_for_a_bucket_that_releases_a_token_late() -> None:
    def late(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(at, left + MS if left > at else left) for at, left in times]

    assert worst([(0, number % 3) for number in range(12)], [(1, 1)] * 3, late) > 0


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
