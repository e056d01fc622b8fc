"""Requests that pass together: all are checked, then all are charged, or none."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from drld import config
from drld.model import NS_PER_S, Enforcement
from drld.policy import Mode
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Answer, Request
from drld.requests.spec import ITEM

from .good import GOOD
from .made import FREE, bucket, limit, limited, of_plan, remaining

API = Request("api", {}, caller="alice")
OTHER = Request("other", {}, caller="alice")


def admitted(answers: list[Answer]) -> list[bool]:
    return [answer.admitted for answer in answers]


def begun(path: RequestDatapath) -> RequestDatapath:
    """One request has passed: a full bucket admits any request, and is in debt then."""
    path.decide(FREE._replace(charge=True), 0)
    return path


def levels(path: RequestDatapath) -> list[int]:
    return [path.copy_of(number).bucket.tokens for number in (1, 2)]


def test_a_limit_must_have_enough_for_all_that_fall_under_it() -> None:
    path = limited((limit(1), bucket(3, rate=1)), (of_plan(2), bucket(9)))
    first = path.decide_all([API, FREE], 0)
    assert admitted(first) == [True, True]
    assert [remaining(answer) for answer in first] == [[1], [1, 8]]
    # One is left: it would do for the first of them, and not for both.
    second = path.decide_all([API, FREE], 0)
    assert admitted(second) == [True, False]
    assert second[1].refused is second[1].standings[0]
    assert second[1].retry_ns == NS_PER_S
    assert levels(path) == [ITEM, 8 * ITEM]
    assert path.decide(API, 0).admitted
    read = path.read(1, 0)
    assert (read.arrived_items, read.forwarded_items, read.dropped_items) == (3, 2, 1)
    assert read.arrived_tokens == 5 * ITEM
    # The second limit counts demand that was refused before it was asked.
    assert path.read(2, 0).dropped_items == 0


def test_a_question_without_cost_takes_nothing_and_refuses_all() -> None:
    path = begun(limited((limit(1), bucket(2)), (of_plan(2), bucket(1))))
    path.read(1, 0)
    before = levels(path)
    answers = path.decide_all([API, FREE._replace(cost=0)], 0)
    assert admitted(answers) == [True, False]
    assert levels(path) == before
    assert path.read(1, 0).arrived_items == 0
    assert admitted(path.decide_all([API, API._replace(cost=0)], 0)) == [True, False]
    assert admitted(path.decide_all([API._replace(cost=0)] * 2, 0)) == [True, True]
    assert levels(path) == before


def test_a_full_bucket_admits_all_that_come_together() -> None:
    """It also admits one request of that cost: the depth may be a part of a request."""
    path = limited((limit(1), bucket(0.5)), (of_plan(2), bucket(9)))
    assert admitted(path.decide_all([API, API], 0)) == [True, True]
    assert levels(path) == [-1.5 * ITEM, 9 * ITEM]


def test_more_than_a_burst_never_passes() -> None:
    path = limited((limit(1, burst=2 * ITEM), bucket(2, rate=1)))
    answers = path.decide_all([API, API._replace(cost=2), OTHER], 0)
    assert admitted(answers) == [True, False, True]
    assert answers[1].retry_ns is None
    assert "never" in (answers[1].reason or "")
    assert path.counters() == {
        "requests_unmatched": 1, "requests_oversized": 1, "requests_overridden": 0,
    }  # fmt: skip
    assert path.read(1, 0).arrived_items == 0


def test_shadow_refuses_nothing_however_large() -> None:
    path = limited((limit(1, mode=Mode.SHADOW, burst=2 * ITEM), bucket(2)))
    assert admitted(path.decide_all([API._replace(cost=2), API], 0)) == [True, True]
    assert admitted(path.decide_all([API, API], 0)) == [True, True]
    assert admitted(path.decide_all([API, API], 0)) == [True, True]


def test_a_request_that_random_drop_hits_is_refused() -> None:
    path = limited((limit(1), Enforcement(drop_probability=0.999999, depth=9 * ITEM)))
    answers = path.decide_all([OTHER, API], 0)
    assert admitted(answers) == [True, False]
    assert answers[1].refused is not None


def test_charges_always_pass() -> None:
    path = limited((limit(1), bucket(1)), (of_plan(2), bucket(1)))
    assert admitted(path.decide_all([API._replace(charge=True, cost=2)] * 2, 0)) == [True, True]
    assert path.copy_of(1).bucket.tokens == -3 * ITEM


def test_buckets_of_keys_are_each_one() -> None:
    text = GOOD.replace('"api" }', '"api", per = ["user"] }').replace("100/s", "1/min")
    path = RequestDatapath(Random(1), bytes(16))
    limits = config.parse(text.replace("burst = 200", "burst = 20"), "f").limits
    path.attach([(it, Enforcement()) for it in limits], 0)
    alice, bob = (Request("api", {"user": user}, 15) for user in ("alice", "bob"))
    path.keyed.tick(0)
    # One bucket has 20, which is not enough for the last; nothing is taken.
    answers = path.decide_all([alice, alice._replace(cost=5), alice._replace(cost=1)], 0)
    assert admitted(answers) == [True, True, False]
    answers = path.decide_all([alice, bob, bob._replace(cost=5)], 0)
    assert admitted(answers) == [True, True, True]
    assert [remaining(answer) for answer in answers] == [[5], [0], [0]]
    assert admitted(path.decide_all([alice, bob], 0)) == [False, False]
    assert admitted(path.decide_all([alice._replace(cost=5), bob], 0)) == [True, False]
    assert remaining(path.decide(alice._replace(cost=0), 0)) == [5]


costs = st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=4)


@given(st.integers(0, 6), st.integers(0, 6), costs)
def test_all_requests_pass_or_none(first: int, second: int, asked: list[tuple[bool, int]]) -> None:
    path, one_by_one = (
        begun(limited((limit(1), bucket(first)), (of_plan(2), bucket(second)))) for _ in range(2)
    )
    requests = [(FREE if free else API)._replace(cost=cost) for free, cost in asked]
    whole = [one_by_one.decide(request, 0).admitted for request in requests]
    before = levels(path)
    answers = path.decide_all(requests, 0)
    charged = [sum(cost for _, cost in asked), sum(cost for free, cost in asked if free)]
    if all(answer.admitted for answer in answers):
        after = [level - cost * ITEM for level, cost in zip(before, charged, strict=True)]
        assert levels(path) == after
        assert levels(one_by_one) == after
        assert all(whole)
    else:
        assert levels(path) == before
        assert not all(whole)
        # The first that is refused is the same.
        assert [answer.admitted for answer in answers].index(False) == whole.index(False)
