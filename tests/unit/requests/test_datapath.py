"""The decision on a request: all limits are checked, then all are charged, or none."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.model import NS_PER_S, Enforcement, FlowId, FlowKey
from drld.police.policer import DRAW_BITS, Policer
from drld.policy import Mode
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Answer, Request
from drld.requests.spec import ITEM
from drld.units import BYTES

from ...factories import MS, policy
from ...fleets.requests import API
from .made import FREE, bucket, limit, limited, of_plan, remaining


def test_requests_are_admitted_until_the_bucket_is_empty() -> None:
    path = limited((limit(), bucket(3, rate=1)))
    answers = [path.decide(API, 0) for _ in range(4)]
    assert [answer.admitted for answer in answers] == [True, True, True, False]
    assert [remaining(answer) for answer in answers] == [[2], [1], [0], [0]]
    refused = answers[3].refused
    assert refused is not None
    assert refused.limit.name == "limit-1"
    assert answers[3].reason == "above the limit limit-1"
    assert answers[3].retry_ns == NS_PER_S
    assert answers[0].retry_ns is None
    assert not path.decide(API, NS_PER_S - 1).admitted
    assert path.decide(API, NS_PER_S).admitted
    read = path.read(1, NS_PER_S)
    assert (read.arrived_items, read.forwarded_items, read.dropped_items) == (6, 4, 2)
    assert read.arrived_tokens == 6 * ITEM


def test_a_request_under_several_limits_is_charged_to_all_or_to_none() -> None:
    path = limited((limit(1), bucket(10)), (of_plan(2), bucket(1, rate=2)))
    assert remaining(path.decide(FREE, 0)) == [9, 0]
    answer = path.decide(FREE, 0)
    assert remaining(answer) == [9, 0]
    assert answer.refused is answer.standings[1]
    assert answer.retry_ns == NS_PER_S // 2
    # Another plan falls under the first limit alone.
    assert remaining(path.decide(Request("api", {"plan": "paid"}), 0)) == [8]
    reason = "no limit has the namespace web"
    assert path.decide(Request("web", {}), 0) == Answer(True, (), None, reason, granted=1)
    assert path.counters()["requests_unmatched"] == 1


def test_a_cost_counts_so_many_times_and_one_above_the_burst_is_no_demand() -> None:
    path = limited((limit(burst=5 * ITEM), bucket(5, rate=1)))
    assert remaining(path.decide(API._replace(cost=3), 0)) == [2]
    answer = path.decide(API._replace(cost=3), 0)
    assert not answer.admitted
    assert answer.retry_ns == NS_PER_S
    path.read(1, 0)
    never = path.decide(API._replace(cost=6), 0)
    assert not never.admitted
    assert never.retry_ns is None
    assert never.reason == (
        "its cost is above the burst of the limit limit-1, 5 requests: it never passes"
    )
    assert path.read(1, 0).arrived_items == 0
    assert path.counters()["requests_oversized"] == 1


def test_cost_0_asks_and_takes_nothing() -> None:
    path = limited((limit(), bucket(1)))
    peek = API._replace(cost=0)
    before = path.copy_of(1).read(0)
    for _ in range(3):
        assert path.decide(peek, 0).admitted
    assert remaining(path.decide(peek, 0)) == [1]
    assert path.copy_of(1).read(0) == before
    assert path.decide(API, 0).admitted
    assert not path.decide(peek, 0).admitted


def test_a_part_counts_as_one_request_that_passes_and_one_that_is_refused() -> None:
    path = limited((limit(1), bucket(10)), (of_plan(2, burst=8 * ITEM), bucket(5, rate=1)))
    path.decide(FREE, 0)
    answer = path.decide(FREE._replace(cost=50, at_least=2), 0)
    assert (answer.admitted, answer.granted, answer.refused) == (True, 4, None)
    assert [it.amount for it in answer.standings] == [4 * ITEM] * 2
    assert remaining(answer) == [5, 0]
    # No burst allows more than 8, so no more than that is wanted.
    for number, dropped in ((1, 0), (2, 4)):
        read = path.read(number, 0)
        assert (read.arrived_items, read.forwarded_items) == (3, 2)
        assert (read.arrived_tokens, read.forwarded_tokens) == (9 * ITEM, 5 * ITEM)
        assert (read.dropped_tokens, read.dropped_items) == (dropped * ITEM, dropped // 4)
    refused = path.decide(FREE._replace(cost=50, at_least=2), 0)
    assert (refused.admitted, refused.granted, refused.retry_ns) == (False, 0, 2 * NS_PER_S)
    never = path.decide(FREE._replace(cost=50, at_least=9), 0)
    assert (never.retry_ns, path.counters()["requests_oversized"]) == (None, 1)


def test_a_charge_always_passes_and_its_debt_delays_later_requests() -> None:
    on_bytes = limit(3, unit=BYTES, burst=10_000)
    path = limited(
        (limit(1), bucket(5, rate=1)),
        (limit(2, mode=Mode.SHADOW), bucket(1)),
        (on_bytes, Enforcement(fill_rate=1000, depth=10_000)),
    )
    answer = path.decide(API._replace(cost=8, size=100, charge=True), 0)
    assert (answer.admitted, answer.granted, answer.retry_ns) == (True, 8, None)
    assert [it.remaining for it in answer.standings] == [0, 0, 9900]
    assert answer.standings[0].reset_ns == 8 * NS_PER_S
    refused = path.decide(API._replace(size=1), 0)
    assert (refused.admitted, refused.retry_ns) == (False, 4 * NS_PER_S)
    # Cost 0 charges the size alone: requests were paid for when they were admitted.
    path.decide(API._replace(cost=0, size=12_000, charge=True), 0)
    waits = [it.wait_ns for it in path.decide(API._replace(size=1), 0).standings]
    assert waits == [4 * NS_PER_S, 0, 2101 * MS]
    read = path.read(1, 0)
    assert (read.forwarded_tokens, read.forwarded_items) == (8 * ITEM, 1)
    # Estimators leave out what is owed: the bucket itself forwards nothing until it is paid.
    assert (read.owed_tokens, sum(read.flows.values())) == (3 * ITEM, 7 * ITEM)
    assert (read.dropped_tokens, read.dropped_items) == (2 * ITEM, 2)
    # A limit that begins to enforce again has a full bucket, and no debt.
    limited((limit(1, mode=Mode.PAUSE), Enforcement()), datapath=path)
    limited((limit(1), bucket(5)), datapath=path)
    assert remaining(path.decide(API, 0)) == [4]


def test_a_charge_is_that_of_its_caller() -> None:
    fair = Enforcement(
        fill_rate=10 * ITEM, depth=20 * ITEM, flow_rate=ITEM, flow_depth=2 * ITEM, reserve=19 * ITEM
    )
    path = limited((limit(), fair))
    path.decide(API._replace(caller="greedy", cost=5, charge=True), 0)
    assert not path.decide(API._replace(caller="greedy"), 0).admitted
    assert path.decide(API._replace(caller="modest"), 0).admitted
    # After the debt of a caller's own share, it passes again.
    assert path.decide(API._replace(caller="greedy"), 10 * NS_PER_S).admitted


def test_a_shadow_limit_counts_and_refuses_nothing() -> None:
    path = limited((limit(1, mode=Mode.SHADOW, burst=ITEM), bucket(1)), (limit(2), bucket(5)))
    assert all(path.decide(API, 0).admitted for _ in range(3))
    assert path.read(1, 0).dropped_items == 2
    assert path.read(2, 0).forwarded_items == 3
    assert path.decide(API._replace(cost=2), 0).admitted
    assert path.counters()["requests_oversized"] == 0


def test_a_paused_limit_lets_all_pass_and_has_no_bucket() -> None:
    path = limited((limit(mode=Mode.PAUSE), Enforcement()))
    answer = path.decide(API._replace(cost=50), 0)
    assert answer.admitted
    assert remaining(answer) == [None]


def test_a_limit_on_bytes_takes_the_stated_size() -> None:
    on_bytes = limit(unit=BYTES, burst=10_000)
    path = limited((on_bytes, Enforcement(depth=10_000)))
    assert path.decide(API._replace(size=4000), 0).standings[0].remaining == 6000
    # A request that states none is a packet of full size.
    assert path.decide(API, 0).standings[0].remaining == 4500
    assert path.decide(API._replace(cost=2), 0).standings[0].remaining == 1500
    assert not path.decide(API._replace(size=1501), 0).admitted


def test_a_reload_keeps_the_level_in_tokens() -> None:
    path = limited((limit(), bucket(10)))
    path.decide(API._replace(cost=7), 0)
    limited((limit(rate=1), bucket(20)), (limit(2), bucket(1)), datapath=path)
    assert remaining(path.decide(API._replace(cost=0), 0)) == [3, 1]
    limited((limit(2), bucket(1)), datapath=path)
    assert path.decide(API, 0).standings[0].limit.id == 2
    path.detach()
    assert path.decide(API, 0).standings == ()


def test_a_limit_that_counts_another_unit_after_a_reload_begins_with_a_full_bucket() -> None:
    path = limited((limit(), bucket(1)))
    path.decide(API, 0)
    limited((limit(unit=BYTES, burst=5000), Enforcement(depth=5000)), datapath=path)
    assert path.decide(API._replace(size=5000), 0).admitted


def test_a_caller_above_its_fair_share_is_refused_while_others_pass() -> None:
    fair = Enforcement(
        fill_rate=10 * ITEM, depth=20 * ITEM, flow_rate=ITEM, flow_depth=2 * ITEM, reserve=19 * ITEM
    )
    path = limited((limit(), fair))
    greedy = [path.decide(API._replace(caller="greedy"), 0) for _ in range(10)]
    assert not greedy[-1].admitted
    assert (greedy[-1].retry_ns or 0) > 0
    assert path.decide(API._replace(caller="modest"), 0).admitted


RECORDS = st.builds(
    Enforcement,
    drop_probability=st.sampled_from([0.0, 0.0, 1.0]),
    fill_rate=st.sampled_from([-1000, 0, 1000, 1_000_000]),
    depth=st.sampled_from([None, 0, 400, 3000, 20_000]),
    flow_rate=st.sampled_from([0, 1000, 10_000]),
    flow_depth=st.sampled_from([600, 2000]),
    reserve=st.sampled_from([0, 1500, 20_000]),
)


@given(
    RECORDS,
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4000), st.integers(0, 300)), max_size=30),
)
def test_what_is_foretold_is_what_happens(
    record: Enforcement, traffic: list[tuple[int, int, int]]
) -> None:
    """`Policer.wait_ns` is 0 where an item passes, and an item passes after it."""
    policer = Policer(policy(), record, 0)
    now_ns = 0
    for caller, length, wait_ms in traffic:
        now_ns += wait_ms * MS
        flow = FlowKey(0, bytes([caller]), b"", 0, 0)
        foretold = policer.wait_ns(flow, length, now_ns)
        before = policer.copy()
        passed = bool(policer.police(flow, length, now_ns, Random(1)))
        assert passed is (foretold == 0)
        if foretold:
            assert before.police(flow, length, now_ns + foretold, Random(1))


def test_random_drop_alone_is_not_foretold() -> None:
    policer = Policer(policy(), Enforcement(drop_probability=0.5), 0)
    assert policer.drop_threshold == 1 << DRAW_BITS - 1
    assert policer.wait_ns(1, 1500, 0) == 0


@pytest.mark.parametrize("caller", ["", "\u00e9", "x" * 256])
def test_callers_are_known_by_a_hash_under_a_secret(caller: str) -> None:
    flows: list[FlowId] = []
    for secret in (b"one", b"two"):
        path = RequestDatapath(Random(1), secret)
        limited((limit(), bucket(5)), datapath=path)
        path.decide(API._replace(caller=caller), 0)
        flows += path.read(1, 0).flows
    assert len({*flows}) == 2


def test_callers_are_remembered_within_a_bound() -> None:
    path = limited((limit(), bucket(10**6)))
    for number in range(5000):
        path.decide(API._replace(caller=f"caller-{number}"), 0)
    assert 0 < len(path._flows) <= 4096
