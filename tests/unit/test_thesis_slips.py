"""Where the thesis slips: what would follow as printed, and what is done here."""

from __future__ import annotations

from random import Random

import pytest

from drld.requests.buckets.counter import Counter
from drld.requests.buckets.gcra import Gcra
from drld.requests.buckets.pending import Pending
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.queue import Queue
from drld.requests.buckets.urgency import FrequencyAnalysis

from .test_buckets import EPOCH_NS, MS, SLOW, USER, S, decisions


def test_slip_listing_3_1_caps_each_refill_and_not_the_bucket() -> None:
    """Data set F: 2 c requests at half the rate, then as many as pass at once."""
    policy = Policy(100, 100)
    admitted = {}
    for literal in (True, False):
        bucket = Counter(policy, 1, literal=literal)
        for number in range(200):
            assert bucket.take(EPOCH_NS + number * 20 * MS)[0].admitted
        end_ns = EPOCH_NS + 3990 * MS
        admitted[literal] = sum(bucket.take(end_ns)[0].admitted for _ in range(400))
    assert admitted == {True: 299, False: 100}


def test_slip_listing_4_1_would_keep_the_dead() -> None:
    """The listing removes heads whose death is ahead: a full queue never has room again."""
    bucket = Queue(SLOW, 1)
    assert decisions(bucket, [0, 0, 0, 0, 0, 1]) == [True] * 4 + [False, True]
    kept = [death for death in (1, 2, 3, 4) if not death > 1]
    assert kept == [1], "as printed: the dead one stays, and those that live go"


def test_slip_listing_4_2_keeps_two_elements_of_a_birth_in_delta_states() -> None:
    """Merged as printed, a delta state has one request twice, and so has its receiver."""
    per, born = 20, 1
    printed: list[list[int]] = []
    for birth, death in sorted([(born, 21), (born, 41)]):
        least = printed[-1][1] + per if printed else death
        printed.append([birth, max(least, death)])
    assert printed == [[1, 21], [1, 41]]
    local = [[1, 21]]
    # At the receiver the heads are paired: one pair is one element, the other stays a second one.
    assert len(local) + len(printed) - 1 == 2
    pending = Pending()
    pending.add(USER, {(1, 0): 21})
    pending.add(USER, {(1, 0): 41})
    assert pending.news == {USER: {(1, 0): 41}}, "here it is one, with the larger death"


def test_slip_listing_4_5_compares_an_interval_as_if_it_were_a_frequency() -> None:
    """As printed it tells neighbours of a user who is slow, and not of one who is fast."""
    window, threshold = 3, 1000
    rule = FrequencyAnalysis(window, threshold * MS)
    due, printed = [], []
    for gap in (100, 3000):
        births = [EPOCH_NS // MS + number * gap for number in range(window)]
        due.append(rule.due({(birth, 0): 1 for birth in births}, births[-1] * MS))
        printed.append((births[-1] - births[-window]) / window > threshold)
    assert (due, printed) == ([True, False], [False, True])


def test_slip_a_refill_at_approved_requests_alone_never_frees_a_full_queue() -> None:
    """4.2.2; by 4.2.1 a refill comes with any request."""
    times = [0.0, 0, 0, 0, 0, 1, 9]
    deaths: list[float] = []
    printed = []
    for time_s in times:
        if approved := len(deaths) < SLOW.capacity:
            deaths = [death for death in deaths if death > time_s]
            deaths.append(max([*deaths, time_s]) + 1)
        printed.append(approved)
    assert printed == [True] * 4 + [False] * 3
    assert decisions(Queue(SLOW, 1), times) == [True] * 4 + [False, True, True]


@pytest.mark.parametrize(("rate", "lost"), [(100, 0.05), (1000, 0.37)])
def test_slip_requests_of_one_millisecond_are_not_negligible(rate: int, lost: float) -> None:
    """Each of 2,000 requests comes to a limiter that has no other; then one is told of all."""
    rng, policy, count = Random(1), Policy(10_000, 1, 100_000 * S), 2000
    at_ns, one = EPOCH_NS, Queue(policy, 0)
    for origin in range(count):
        at_ns += round(rng.expovariate(rate) * S)
        other = Queue(policy, origin)
        assert other.take(at_ns)[0].admitted
        one.merge(other.delta(other.everything(), at_ns), at_ns)
    assert 1 - one.entries / count == pytest.approx(lost, abs=0.02)


def test_slip_percent_more_are_ratios() -> None:
    """ "798 % more" is a ratio of 7.98, which is 698 % more.

    As a part or as a ratio, "0.0025 % more" (5.3) is about equal.
    """
    ratios = {7.98: 798, 8.83: 883, 5.13: 513, 4.95: 495, 4.27: 427, 2.15: 215}
    assert all(round(100 * ratio) == said for ratio, said in ratios.items())
    assert all(round(100 * (ratio - 1)) == said - 100 for ratio, said in ratios.items())
    assert max(0.0025 / 100, 1.0025 - 1) < 0.01


def test_slip_an_unlimited_user_sends_more_slowly_than_the_refill() -> None:
    """4.3.4 says "slightly faster" of B's user, whom no limit holds (figure 5.11)."""
    faster, slower = (
        decisions(Gcra(SLOW), [number * gap_s for number in range(120)]) for gap_s in (0.95, 1.05)
    )
    assert not all(faster)
    assert all(slower)
