"""Decisions of a client by itself: without a limiter, and with tokens that it has taken ahead."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.client.protocol import fallback
from drld.client.protocol.availability import AGAIN_NS, QUIET_NS, REFRESH_NS, Availability
from drld.client.protocol.backoff import FIRST_NS, LONGEST_NS, Backoff
from drld.client.protocol.fallback import Fallback
from drld.client.protocol.lease import LEASE_NS, MAX_LEASE, Lease
from drld.client.protocol.limit_table import LimitInfo, LimitTable
from drld.client.protocol.model import Answer, Question
from drld.client.protocol.rate import parse_rate

S = 10**9
ITEM = 10**6
API = LimitInfo(
    "api", "api", {}, "share", True, "requests", ITEM, 100, 1, 100 * ITEM, 10 * ITEM, 20 * ITEM
)
FREE = replace(API, name="free", where={"plan": "free"}, share_rate=ITEM, share_burst=2 * ITEM)


def received(lease: Lease, answer: Answer, cost: int, asked_ns: int, now_ns: int) -> bool:
    return lease.receive(answer, cost, asked_ns, now_ns, left=answer.remaining)


def told(*limits: LimitInfo, processes: int = 1) -> Fallback:
    made = Fallback("open")
    made.learn(LimitTable(limits, processes))
    return made


def admitted(made: Fallback, number: int, question: Question, now_ns: int = 0) -> int:
    return sum(made.decide(question, now_ns).admitted for _ in range(number))


def test_a_share_is_divided_among_the_processes() -> None:
    alone, one_of_four = told(API), told(API, processes=4)
    assert admitted(alone, 50, Question("api")) == 20
    assert admitted(one_of_four, 50, Question("api")) == 5
    # 10 requests a second, of which it has a quarter.
    assert admitted(one_of_four, 50, Question("api"), 2 * S) == 5
    refused = one_of_four.decide(Question("api"), 2 * S)
    assert refused == Answer(False, 0, "api", retry_after_s=0.4, degraded=True)
    # However many there are, a request fits.
    assert admitted(told(API, processes=100), 9, Question("api")) == 1


def test_all_limits_are_checked_and_then_all_are_charged_or_none() -> None:
    made = told(API, FREE)
    assert admitted(made, 9, Question("api", {"plan": "free"})) == 2
    assert admitted(made, 30, Question("api")) == 18
    assert made.decide(Question("api", cost=0), 0).admitted is False
    assert made.decide(Question("other"), 0).admitted


def test_on_failure_open_admits_all_and_closed_none() -> None:
    open_, closed = replace(API, on_failure="open"), replace(FREE, on_failure="closed")
    made = told(open_, closed)
    assert admitted(made, 100, Question("api")) == 100
    refused = made.decide(Question("api", {"plan": "free"}), 0)
    assert (refused.admitted, refused.limit, refused.retry_after_s) == (False, "free", 1.0)
    assert (
        told(replace(closed, enforced=False)).decide(Question("api", {"plan": "free"}), 0).admitted
    )
    # Where nothing was ever told, the application says.
    assert Fallback("open").decide(Question("api"), 0).admitted
    assert not Fallback("closed").decide(Question("api"), 0).admitted
    # What has been carried out is.
    assert Fallback("closed").decide(Question("api", charge=True), 0).admitted


@pytest.mark.parametrize(
    "wrong",
    [{"size": -5}, {"cost": -1}, {"cost": 0.5}, {"size": float("nan")}, {"cost": 2**63},
     {"descriptor": {"user": 7}}, {"namespace": None}],
    ids=str,
)  # fmt: skip
def test_a_question_with_a_mistake_is_refused_and_charges_nothing(wrong: dict[str, Any]) -> None:
    made = told(replace(API, unit="bytes"))
    for _ in range(30):
        answer = made.decide(Question("api", size=ITEM)._replace(**wrong), 0)
        assert (answer.admitted, answer.degraded) == (False, True)
        assert answer.error
    assert admitted(made, 30, Question("api", size=ITEM)) == 20


def test_a_thread_decides_while_another_learns_the_limits() -> None:
    made = told(replace(API, per=("user",)))

    class Learns(str):
        """A value whose hash has the client learn the limits again, as another thread may."""

        __slots__ = ()

        def __hash__(self) -> int:
            made.learn(LimitTable((replace(API, per=("user",)),), 1))
            return super().__hash__()

    assert made.decide(Question("api", {"user": Learns("alice")}), 0).admitted


def test_a_lease_is_bounded_however_much_a_limiter_says_is_left() -> None:
    lease = Lease()
    assert received(lease, Answer(True, 1, remaining=math.inf), 1, 0, 0)
    assert lease.wanted(1, 0) == 2


@pytest.mark.parametrize("cost", [0, -1, -(2**63), float("nan")])
def test_a_lease_takes_no_cost_below_one(cost: int) -> None:
    lease = Lease()
    assert received(lease, Answer(True, 5, remaining=40), 1, 0, 0)
    with pytest.raises(ValueError, match="cost: must be at least 1"):
        lease.take(cost, 0)
    assert [lease.take(1, 0) for _ in range(5)] == [True, True, True, True, None]


def test_costs_and_sizes_count_and_a_part_is_the_least() -> None:
    made = told(API)
    assert made.decide(Question("api", cost=15), 0).granted == 15
    assert not made.decide(Question("api", cost=15), 0).admitted
    assert made.decide(Question("api", cost=15, at_least=3), 0).granted == 3
    on_bytes = told(replace(API, unit="bytes", item=1500, share_burst=3000, share_rate=0))
    assert on_bytes.decide(Question("api", size=2900), 0).admitted
    refused = on_bytes.decide(Question("api", size=101), 0)
    assert (refused.admitted, refused.retry_after_s) == (False, None)
    assert told(replace(API, share_burst=None)).decide(Question("api", cost=10**6), 0).admitted


def test_each_key_has_a_bucket_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "MAX_KEYS", 3)
    made = told(replace(FREE, where={}, per=("user",)))
    for user in "abc":
        assert admitted(made, 5, Question("api", {"user": user})) == 2
    # Strangers share one bucket; known users keep theirs.
    assert sum(admitted(made, 5, Question("api", {"user": it})) for it in "defghi") == 2
    assert admitted(made, 5, Question("api", {"user": "a"}), 2 * S) == 2
    assert admitted(made, 5, Question("api")) == 5


def test_backoff_grows_to_a_bound_and_ends_with_an_answer() -> None:
    made, now_ns, waits = Backoff(Random(1)), 0, []
    assert made.ready(0)
    for _ in range(12):
        made.failed(now_ns)
        made.failed(now_ns)  # Of another thread, which had tried in the same time.
        begun = now_ns
        while not made.ready(now_ns):
            now_ns += FIRST_NS // 100
        waits.append(now_ns - begun)
    for place, wait in enumerate(waits):
        most = min(FIRST_NS << place, LONGEST_NS)
        assert most / 2 <= wait <= most + FIRST_NS // 100
    made.succeeded()
    made.failed(now_ns)
    assert made.ready(now_ns + FIRST_NS)


def test_failures_are_counted_and_few_are_logged() -> None:
    made = Availability(Random(1), "open")
    assert made.wants_limits(0)
    assert not made.wants_limits(AGAIN_NS - 1)
    # None have come: the call that asked may have been cancelled.
    assert made.wants_limits(AGAIN_NS)
    made.learn(LimitTable((), 1))
    assert not made.wants_limits(AGAIN_NS + REFRESH_NS - 1)
    assert made.wants_limits(AGAIN_NS + REFRESH_NS)
    lines = []
    now_ns = 0
    for _ in range(5):
        lines.append(made.failed("refused", now_ns))
        made.without([Question("api")], now_ns)
        now_ns += QUIET_NS // 4
        assert made.wants_limits(now_ns), "a limiter that is back may have others"
    assert [line is not None for line in lines] == [True, False, False, False, True]
    assert made.answered(3) == "the limiter answers again; decided without it so far: 5"
    assert made.answered(1) is None
    assert made.counts == Counter({"failures": 5, "degraded": 5, "answered": 4})
    # A failure that is not logged has no line about its end, either.
    for _ in range(3):
        assert made.failed("refused", now_ns - 1) is None
        assert made.answered(1) is None
    assert made.failed("refused", now_ns + QUIET_NS) is not None
    assert made.answered(1) == "the limiter answers again; decided without it so far: 5"


def granted(number: int, left: float | None = 10**9) -> Answer:
    return Answer(True, number, "api", left)


def test_a_lease_grows_while_it_is_used_and_lapses_in_time() -> None:
    lease, sizes = Lease(), []
    for _ in range(20):
        assert lease.take(1, 0) is None
        sizes.append(wanted := lease.wanted(1, 0))
        assert received(lease, granted(wanted), 1, 0, 0)
        for _ in range(wanted - 1):
            assert lease.take(1, LEASE_NS - 1)
    assert sizes == [min(1 << place, MAX_LEASE) for place in range(20)]
    # A lease that is not used in time is lost, and the next is what was used of it.
    wanted = lease.wanted(1, 0)
    received(lease, granted(wanted), 1, 0, 0)
    for _ in range(9):
        lease.take(1, 0)
    assert lease.take(1, LEASE_NS) is None
    assert lease.wanted(1, LEASE_NS) == 10
    assert lease.lost == wanted - 10


def test_a_lease_leaves_others_most_of_the_tokens() -> None:
    lease = Lease()
    for left, most in ((100, 25), (3, 1), (0, 1)):
        lease._size = 1000
        received(lease, granted(1, left), 1, 0, 0)
        assert lease.wanted(1, 0) == most
    assert lease.wanted(7, 0) == 7


def test_a_lease_begins_again_after_an_outage() -> None:
    """Otherwise it would take the whole bucket at once, whose remainder is not known then."""
    counts: Counter[str] = Counter()
    lease = Lease(counts)
    for _ in range(20):
        assert received(lease, Answer(True, 1, degraded=True), 1, 0, 0)
        assert lease.wanted(1, 0) == 1
    assert counts["leased"] == 0


def test_a_refusal_holds_until_the_time_to_retry() -> None:
    lease = Lease()
    assert not received(lease, Answer(False, 0, "api", 0, None, 0.05), 2, 0, 0)
    assert lease.take(2, S // 20 - 1) is False
    assert lease.take(1, S // 20 - 1) is None, "a smaller cost may pass"
    assert lease.take(2, S // 20) is None
    assert not received(lease, Answer(False, 0, "api", 0, None, 9.0), 1, 0, 0)
    assert lease.take(1, LEASE_NS) is None
    # Without a limiter each decision is `on_failure`'s, in process too.
    assert received(lease, Answer(True, 1, degraded=True), 1, S, S)
    assert lease.take(1, S) is None
    assert not received(lease, Answer(False, 0, degraded=True), 1, S, S)
    assert lease.take(1, S) is None


@given(
    st.lists(st.tuples(st.integers(0, 2 * LEASE_NS), st.integers(1, 5)), max_size=60),
    st.integers(0, 300),
)
def test_leased_requests_were_charged_and_charges_are_admitted_or_lost(
    steps: list[tuple[int, int]], bucket: int
) -> None:
    counts = Counter(leased=0, lost=0)
    lease, now_ns, admitted, full = Lease(counts), 0, 0, bucket
    charged: list[tuple[int, int]] = []
    for gap_ns, cost in steps:
        now_ns += gap_ns
        if cost == 5:
            lease.lapse(now_ns)
        decided = lease.take(cost, now_ns)
        if decided is None:
            wanted = lease.wanted(cost, now_ns)
            part = min(wanted, bucket)
            answer = (
                Answer(True, part, "api", bucket - part)
                if part >= cost
                else Answer(False, 0, "api", bucket, None, 1.0)
            )
            bucket -= answer.granted
            charged.append((now_ns, answer.granted))
            decided = received(lease, answer, cost, now_ns, now_ns)
        else:
            # It was charged not long ago.
            assert not decided or charged[-1][0] > now_ns - LEASE_NS
        admitted += cost * decided
    assert admitted + lease.lost + lease._tokens + bucket == full
    lease.lapse(now_ns + LEASE_NS)
    assert lease._tokens == 0
    assert counts == {"leased": full - bucket, "lost": lease.lost}
    assert admitted == counts["leased"] - counts["lost"]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/minute", (100, 60)),
        ("5 per second", (5, 1)),
        ("10/2 hours", (10, 7200)),
        ("1/s", (1, 1)),
        ("7 / DAYS", (7, 86_400)),
        ("9/min", (9, 60)),
    ],
)
def test_rates_are_read_as_other_libraries_write_them(text: str, rate: tuple[int, int]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    ["", "100", "0/s", "1/0 s", "-1/s", "1/ms", "1/m", "1.5/s", "1/week", "\u0661/s", "1/sss"],
)
def test_a_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a rate such as"):
        parse_rate(text)


def test_a_lease_of_a_limit_on_bytes_is_of_requests() -> None:
    """A quarter of 75,000 bytes is twelve requests of 1,500, and not 18,750."""
    table = LimitTable((replace(API, unit="bytes", item=1500),), 1)
    assert table.requests_left("api", 75_000.0) == 50
    assert LimitTable((API,), 1).requests_left("api", 75.0) == 75
    assert table.requests_left("other", 75.0) == 75
    assert table.requests_left("api", None) is None


def test_a_cost_above_the_burst_of_the_limit_never_passes() -> None:
    """One above this process's bucket alone does, and the bucket is in debt."""
    made = told(replace(API, burst=50 * ITEM))
    assert not made.decide(Question("api", cost=51), 0).admitted
    assert made.decide(Question("api", cost=50), 0).admitted
    assert not made.decide(Question("api"), S).admitted
