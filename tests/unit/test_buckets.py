"""Replicated buckets: the thesis' figures as tables of decisions, its slips, and single rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import pairwise
from random import Random

import pytest

from drld.errors import WireError
from drld.gossip.wire.message import MAX_CONTENT
from drld.requests.buckets.bucket import Bucket, News
from drld.requests.buckets.counter import Counter
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, Part, parts
from drld.requests.buckets.gcra import Gcra
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.ledger_shape import SLOTS
from drld.requests.buckets.pending import Pending
from drld.requests.buckets.policy import Decision, Policy
from drld.requests.buckets.queue import Element, Queue
from drld.requests.buckets.replica import Message, Replica
from drld.requests.buckets.spread import flat, flat_among_all, least_informed
from drld.requests.buckets.urgency import FrequencyAnalysis, Slack
from tests.sliding_log import SlidingLog

MS = 1_000_000
S = 1000 * MS
EPOCH_NS = 10**6 * S
USER, BIGCO, NOBODY = 1, 2, 3
"""Keys."""
SLOW = Policy(capacity=4, rate=1)
"""Figures 4.1 and 4.2: four tokens, one a second."""


def ledger(policy: Policy = SLOW, origin: int = 1, interval_ms: int = 300) -> Ledger:
    return Ledger(policy, origin, interval_ms * MS, S)


def decisions(bucket: Bucket | Gcra | SlidingLog, times_s: list[float]) -> list[bool]:
    found = []
    for time_s in times_s:
        taken = bucket.take(EPOCH_NS + round(time_s * S))
        found.append((taken if isinstance(taken, Decision) else taken[0]).admitted)
    return found


def test_figure_4_2_the_log_refuses_what_a_bucket_admits() -> None:
    times = [0.5, 1, 2, 3, 4]
    assert decisions(SlidingLog(SLOW), times) == [True, True, True, True, False]
    for bucket in (Gcra(SLOW), Counter(SLOW, 1), Queue(SLOW, 1), ledger()):
        assert decisions(bucket, times) == [True] * 5


def test_figure_4_1_log_and_bucket_admit_as_much_of_endless_requests() -> None:
    times = [number / 10 for number in range(200)]
    admitted = [sum(decisions(bucket, times)) for bucket in (Gcra(SLOW), SlidingLog(SLOW))]
    assert admitted == [4 + 19, 4 * 5]


def test_the_merge_of_section_4_1_2() -> None:
    """Times of the text are ms here, and a token takes 20."""
    one, other = (Queue(Policy(100, 1, 20 * MS), 1) for _ in range(2))
    for bucket, births in ((one, (1, 3, 5)), (other, (2, 4))):
        for birth in births:
            bucket.take(birth * MS)
    news, _ = one.merge(other.delta(other.everything(), 5 * MS), 5 * MS)
    lives = one.delta(one.everything(), 0)
    deaths = {birth: life * 20 * MS // 10**9 + birth * MS for (birth, _), life in lives}
    assert deaths == {1: 21 * MS, 2: 41 * MS, 3: 61 * MS, 4: 81 * MS, 5: 101 * MS}
    assert {birth for birth, _ in news} == {2, 3, 4, 5}


def test_figure_4_5_no_death_is_lowered() -> None:
    one, other = (Queue(SLOW, origin) for origin in (1, 2))
    for bucket, times in ((one, (0.0, 0.1, 1.0)), (other, (1.0,))):
        for time_s in times:
            bucket.take(round(time_s * S))
    one.merge(other.delta(other.everything(), S), S)
    # The first element has died; the death of the last still tells that it lived.
    assert one.entries == 2
    assert one.level(S) == 2
    other.merge(one.delta(one.everything(), S), S)
    assert other.level(S) == 2


def test_figure_4_4_an_element_that_returns_is_no_second_request() -> None:
    a, b, c = (Queue(SLOW, origin) for origin in range(3))
    a.take(S)
    b.merge(a.delta(a.everything(), S), S)
    c.merge(b.delta(b.everything(), S), S)
    assert a.merge(c.delta(c.everything(), S), S) == ({}, a.everything())
    assert a.entries == 1


def test_requests_of_one_millisecond_at_two_limiters_are_one_for_the_queue_alone() -> None:
    makes: list[tuple[Callable[[int], Bucket], int]] = [
        (lambda origin: Queue(SLOW, origin), 2),
        (lambda origin: Counter(SLOW, origin), 4),
        (lambda origin: ledger(origin=origin), 4),
    ]
    for make, seen in makes:
        one, other = make(1), make(2)
        for bucket in (one, one, other, other):
            assert bucket.take(EPOCH_NS)[0].admitted
        one.merge(other.delta(other.everything(), EPOCH_NS), EPOCH_NS)
        assert one.level(EPOCH_NS) == seen


def test_figure_5_16_the_spread_of_an_element_by_enumeration() -> None:
    """Each limiter that knows it tells one more a round, at best: 8, 4 and 2 of 30 in 900 ms."""
    told = {interval: 2 ** (900 // interval) for interval in (300, 450, 900)}
    assert told == {300: 8, 450: 4, 900: 2}
    assert [round(100 * n / 30) for n in told.values()] == [27, 13, 7]


def test_retry_after_is_when_the_request_passes() -> None:
    for bucket in (Counter(SLOW, 1), Queue(SLOW, 1), ledger()):
        decisions(bucket, [0, 0.25, 0.5, 0.75])
        now_ns = EPOCH_NS + S
        assert bucket.take(now_ns, 1)[0].admitted
        retry_ns = bucket.take(now_ns, 3)[0].retry_after_ns
        assert retry_ns == 3 * S
        assert not bucket.take(now_ns + retry_ns - 1, 3)[0].admitted
        assert bucket.take(now_ns + retry_ns, 3)[0].admitted


@pytest.mark.parametrize("cost", [0, 5])
def test_a_cost_that_no_bucket_has_is_an_error(cost: int) -> None:
    for bucket in (Counter(SLOW, 1), Queue(SLOW, 1), ledger()):
        with pytest.raises(ValueError, match=rf"cost: must be from 1 .* \(got {cost}\)"):
            bucket.take(EPOCH_NS, cost)
    with pytest.raises(ValueError, match=r"rate: must be at least 1 \(got 0\)"):
        Policy(1, 0)


def test_the_ledger_refuses_what_is_too_old_and_counts_it() -> None:
    bucket = ledger()
    life_ms = 4000 + 1000
    assert bucket.merge((Cell(9, 1, 2, life_ms + 1),), EPOCH_NS) == ({}, {9 * SLOTS + 1: 2})
    assert (bucket.late, bucket.entries) == (2, 0)
    assert bucket.merge((Cell(9, 1, 2, life_ms),), EPOCH_NS)[0] == {9 * SLOTS + 1: 2}


def test_the_ledger_forgets_nothing_that_matters_and_everything_else() -> None:
    bucket, gcra = ledger(), Gcra(SLOW)
    times_s = [number * 0.9 for number in range(100)]
    assert decisions(bucket, times_s) == decisions(gcra, times_s)
    assert bucket.entries <= 8, "a bucket fills in 4 s, and the margin is 1 s, twice"
    # The last request was at 89.1 s.
    assert not bucket.idle(EPOCH_NS + 95 * S)
    assert bucket.idle(EPOCH_NS + 96 * S)


def test_flat_sends_to_peers_that_lack_news_and_linf_to_the_one_that_lacks_most() -> None:
    pending = {name: Pending() for name in "abc"}
    rng = Random(1)
    assert flat(pending, rng) is None
    assert least_informed(pending, rng) is None
    pending["b"].add(USER, {1: 1})
    assert flat(pending, rng) == "b"
    assert {flat_among_all(pending, rng) for _ in range(50)} == {"b", None}
    pending["c"].add(USER, {1: 1, 2: 1})
    assert least_informed(pending, rng) == "c"
    pending["b"].add(BIGCO, {3: 1})
    assert {least_informed(pending, rng) for _ in range(50)} == {"b", "c"}


def test_linf_revisits_a_peer_after_as_many_rounds_as_there_are_peers() -> None:
    pending = {f"{number}": Pending() for number in range(29)}
    rng = Random(1)
    visits: dict[str, list[int]] = {peer: [] for peer in pending}
    for step in range(29 * 20):
        for one in pending.values():
            one.add(USER, {step: 1})
        peer = least_informed(pending, rng)
        assert peer is not None
        pending[peer].told({USER: dict(pending[peer].news[USER])}, 0)
        visits[peer].append(step)
    gaps = [b - a for steps in visits.values() for a, b in pairwise(steps)]
    assert max(gaps) == 29


def test_frequency_analysis_looks_at_the_last_of_the_window() -> None:
    rule = FrequencyAnalysis(window=3, threshold_ns=1000 * MS)
    assert not rule.due({(1000, 0): 1, (1001, 0): 1}, 1001 * MS)
    fast: News = {(at, 0): 1 for at in (1000, 9000, 9500, 10_000)}
    assert rule.due(fast, 10_000 * MS)
    slow: News = {(at, 0): 1 for at in (1000, 4000, 7000)}
    assert not rule.due(slow, 7000 * MS)


def replicas(count: int = 4, capacity: int = 40) -> dict[str, Replica]:
    names = [f"l{number}" for number in range(count)]
    policy = Policy(capacity, 1, 100 * S)
    return {
        name: Replica(lambda _key, origin=origin: ledger(policy, origin),  # type: ignore[misc]  # a default is untyped
                      [peer for peer in names if peer != name], slack=Slack(9 * S))
        for origin, name in enumerate(names, 1)
    }  # fmt: skip


def test_slack_speaks_when_its_part_of_what_is_left_is_untold() -> None:
    fleet = replicas()
    told = []
    for number in range(39):
        decision, messages = fleet["l0"].take(USER, EPOCH_NS)
        assert decision.admitted
        if messages:
            assert [peer for peer, _ in messages] == ["l1", "l2", "l3"]
            told.append(number + 1)
    # u >= free / 4: 8 of 32 left, then 7 of 25, ... and one by one at the end.
    assert told[0] == 8
    assert told[-3:] == [37, 38, 39]
    assert len(told) < 15


def test_slack_speaks_also_when_others_have_used_what_was_left() -> None:
    fleet = replicas()
    assert fleet["l0"].take(USER, EPOCH_NS)[1] == []
    answers = []
    for _ in range(38):
        for peer, message in fleet["l1"].take(USER, EPOCH_NS)[1]:
            if peer == "l0":
                answers += fleet["l0"].receive("l1", message, EPOCH_NS)
    assert [peer for peer, _ in answers] == ["l1", "l2", "l3"]


def test_without_slack_a_message_makes_no_news_urgent() -> None:
    """Untold tokens are a matter of slack: without it, all news wait for a round."""
    names = ["l1", "l2"]
    first, second = (
        Replica(lambda _key, origin=origin: ledger(origin=origin), [name])  # type: ignore[misc]  # a default is untyped
        for origin, name in ((1, names[1]), (2, names[0]))
    )
    for one in (first, second):
        for _ in range(SLOW.capacity):
            assert one.take(USER, EPOCH_NS)[1] == []
    ((_, message),) = first.round(EPOCH_NS, Random(1))
    assert second.receive("l1", message, EPOCH_NS) == []
    assert len(second.round(EPOCH_NS, Random(1))) == 1


def test_a_ledger_tells_its_own_cells_from_one_on() -> None:
    bucket, other = ledger(), ledger(origin=2)
    cells = [bucket.charge(EPOCH_NS + number * S, 1 + number) for number in range(3)]
    bucket.merge(other.delta(other.charge(EPOCH_NS + S, 1), EPOCH_NS + S), EPOCH_NS + 3 * S)
    (first,), (second,), (third,) = cells
    assert bucket.own_since(third) == {third: 3}
    assert bucket.own_since(second) == {second: 2, third: 3}
    bucket.reconfigure(Policy(8, 2), EPOCH_NS + 3 * S)
    assert bucket.own_since(second) == {second: 2, third: 3}
    row = bucket.freeze(EPOCH_NS + 4 * S)
    assert row is not None
    assert bucket.thaw(row).own_since(first) == {first: 1, second: 2, third: 3}


def test_a_ledger_tells_all_own_cells_from_one_on_that_is_folded() -> None:
    bucket = ledger()
    (first,) = bucket.charge(EPOCH_NS, 1)
    (second,) = bucket.charge(EPOCH_NS + 60 * S, 1)
    assert bucket.own_since(first) == {second: 1}


def test_slack_delays_small_news_for_a_bounded_time() -> None:
    fleet = replicas()
    fleet["l0"].take(USER, EPOCH_NS)
    assert fleet["l0"].round(EPOCH_NS + 8 * S, Random(1)) == []
    assert len(fleet["l0"].round(EPOCH_NS + 9 * S, Random(1))) == 3
    assert fleet["l0"].settled


def test_news_is_repeated_until_it_is_acknowledged() -> None:
    pending = Pending(repeat_ns=S)
    pending.add(USER, {1: 5})
    number = pending.told({USER: {1: 5}}, 0)
    pending.add(USER, {1: 7})
    pending.repeat(S)
    assert pending.news == {USER: {1: 7}}
    pending.repeat(S + 1)
    assert pending.news == {USER: {1: 7}}, "by maximum"
    again = pending.told({USER: {1: 7}}, 2 * S)
    pending.acknowledge(number)
    pending.acknowledge(again)
    pending.repeat(9 * S)
    assert pending.news == {}


def kinds(policy: Policy = SLOW) -> list[Bucket]:
    return [Counter(policy, 1), Counter(policy, 1, literal=True), Queue(policy, 1), ledger(policy)]


@pytest.mark.parametrize("bucket", kinds(), ids=["counter", "literal", "queue", "ledger"])
def test_a_look_takes_nothing_and_a_charge_always_takes(bucket: Bucket) -> None:
    for _ in range(5):
        assert bucket.decide(EPOCH_NS, 4).admitted
    assert bucket.entries == 0
    bucket.charge(EPOCH_NS, 1)
    bucket.charge(EPOCH_NS, 6)
    assert bucket.level(EPOCH_NS) == 7
    for look in (bucket.decide(EPOCH_NS, 1), bucket.take(EPOCH_NS, 1)[0]):
        assert (look.admitted, look.retry_after_ns) == (False, 4 * S)
    assert bucket.decide(EPOCH_NS + 4 * S, 1).admitted
    with pytest.raises(ValueError, match=r"cost: must be at least 1 \(got 0\)"):
        bucket.charge(EPOCH_NS, 0)


@pytest.mark.parametrize("kind", [Counter, Queue, ledger])
def test_time_alone_pays_a_debt_above_the_capacity(kind: Callable[[Policy, int], Bucket]) -> None:
    bucket = kind(SLOW, 1)
    bucket.charge(EPOCH_NS, 15)
    look = bucket.decide(EPOCH_NS, 1)
    assert look.retry_after_ns == 12 * S
    assert not bucket.decide(EPOCH_NS + 12 * S - 1, 1).admitted
    assert bucket.level(EPOCH_NS + 12 * S) == 3
    assert bucket.take(EPOCH_NS + 12 * S)[0].admitted


@pytest.mark.parametrize(
    "policy", [Policy(9, 7), Policy(4, 1, 60 * S), Policy(2, 3)], ids=["faster", "slower", "less"]
)
def test_another_policy_keeps_the_level_in_tokens(policy: Policy) -> None:
    for bucket in kinds():
        for _ in range(3):
            assert bucket.take(EPOCH_NS)[0].admitted
        now_ns = EPOCH_NS + S // 2
        assert bucket.level(now_ns) == 2.5
        bucket.reconfigure(policy, now_ns)
        assert bucket.level(now_ns) == pytest.approx(2.5)
        wait_ns = bucket.decide(now_ns, 1).retry_after_ns
        assert wait_ns == max(-(-(policy.per_ns * 7 // 2 - policy.depth) // policy.rate), 0)
        assert bucket.take(now_ns + wait_ns)[0].admitted


def test_a_replica_looks_without_a_trace_and_has_a_policy_for_each_key() -> None:
    policies: dict[Hashable, Policy] = {BIGCO: Policy(40, 1)}
    replica = Replica(lambda key: ledger(policies.get(key, SLOW)), ["l1"])
    assert replica.decide(BIGCO, EPOCH_NS, 40).admitted
    assert not replica.buckets
    assert replica.settled
    with pytest.raises(ValueError, match="from 1 to the capacity, 4"):
        replica.decide(USER, EPOCH_NS, 40)
    replica.charge(USER, EPOCH_NS, 6)
    replica.charge(BIGCO, EPOCH_NS, 5)
    replica.take(BIGCO, EPOCH_NS, 4)
    assert replica.busiest(1, EPOCH_NS) == [(BIGCO, 9)]
    assert replica.busiest(9, EPOCH_NS + 7 * S) == [(BIGCO, 2)], "a drained key is not busy"
    assert (replica.level(USER, EPOCH_NS), replica.level(NOBODY, EPOCH_NS)) == (6, 0)
    policies[USER] = Policy(8, 1)
    replica.reconfigure(lambda key: policies.get(key, SLOW), EPOCH_NS)
    assert replica.decide(USER, EPOCH_NS, 2).admitted


def test_a_new_peer_is_told_everything_and_one_that_left_nothing() -> None:
    replica = Replica(lambda _key: ledger(), ["l1"])
    replica.take(USER, EPOCH_NS)
    replica.set_peers(["l2"])
    assert replica.receive("l1", Message(1, {USER: (Cell(9, 1, 2, 0),)}), EPOCH_NS) == []
    [(peer, message)] = replica.round(EPOCH_NS, Random(1))
    assert (peer, [*message.deltas]) == ("l2", [USER])
    assert replica.level(USER, EPOCH_NS) == 1


def test_a_message_of_many_entries_is_several_datagrams_that_fit() -> None:
    elements = tuple(Element((number, 0), 10) for number in range(500))
    cells = tuple(Cell(origin, 1, 1, 5) for origin in range(1, 200))
    counts = Counter(Policy(9000, 1), 1)
    for origin in range(300):
        counts.merge(Counter(Policy(9000, 1), 1).delta({}, 0)._replace(counts=((origin, 1),)), 0)
    codec = DeltaCodec(KIND)
    for form, delta in (
        (Form.QUEUE, elements), (Form.LEDGER, cells), (Form.COUNTER, counts.delta({}, 0))
    ):  # fmt: skip
        found = list(parts(Message(1, {1: delta, 2: delta}, tuple(range(100))), form, 7, 3))
        sizes = [len(codec.encode(part, 0, 1)) for part in found]
        assert max(sizes) <= MAX_CONTENT
        assert min(sizes[:-1]) > MAX_CONTENT - 50
        assert [codec.decode_untrusted(codec.encode(part, 0, 1)) for part in found] == found


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\1\3\0\0\0", "value"),  # an unknown form
        (b"\0\1\2\0\0\1" + bytes(12), "value"),  # a key without cells
        (b"\0\1\2\0\0\1" + bytes(8) + b"\0\1\0\0" + bytes(10), "value"),  # a cell of nothing
        (b"\0\1\2\0\0\0\0", "length"),  # a byte too many
        (b"\0\1\1\0\0\1" + bytes(8) + b"\0\2" + bytes(16), "length"),  # one element of two
    ],
)
def test_the_codec_refuses(data: bytes, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        DeltaCodec(KIND).unpack_untrusted(data)
    assert caught.value.reason == reason


def test_the_codec_reports_what_does_not_fit() -> None:
    part = Part(1, Form.LEDGER, (), ((1, (Cell(1, 70_000, 1, 0),)),))
    with pytest.raises(ValueError, match="does not fit"):
        DeltaCodec(KIND).encode(part, 0, 1)
