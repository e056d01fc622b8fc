"""The verdict of one limit on one packet."""

from random import Random

import pytest

from drld.model import Enforcement
from drld.police.policer import Policer, police
from drld.police.source_sample import SourcePrefix
from drld.policy import Mode

from ..factories import MS, flow, policy

RNG = Random(1)
OPEN = Enforcement(depth=None)


def policer(enforcement: Enforcement, mode: Mode = Mode.ENFORCE) -> Policer:
    return Policer(policy(mode=mode), enforcement, now_ns=0)


def test_arrived_forwarded_and_dropped_packets_are_counted() -> None:
    limit = policer(Enforcement(fill_rate=0, depth=3000))
    verdicts = [police([limit], flow(0), 1500, 0, RNG) for _ in range(3)]
    assert verdicts == [True, True, False]
    read = limit.read(50 * MS)
    assert (read.arrived_tokens, read.arrived_items) == (4500, 3)
    assert (read.forwarded_tokens, read.forwarded_items) == (3000, 2)
    assert (read.dropped_tokens, read.dropped_items) == (1500, 1)
    assert read.interval_ns == 50 * MS
    assert read.flows == {flow(0): 4500}


def test_a_read_starts_a_new_interval_and_keeps_the_flows() -> None:
    limit = policer(OPEN)
    police([limit], flow(0), 1500, 0, RNG)
    limit.read(50 * MS)
    read = limit.read(70 * MS)
    assert (read.interval_ns, read.arrived_tokens, read.flows) == (20 * MS, 0, {flow(0): 0})


def test_evicted_flows_leave_the_sample() -> None:
    limit = policer(OPEN)
    police([limit], flow(0), 1500, 0, RNG)
    limit.program(OPEN, [flow(0), flow(1)], 0)
    assert limit.read(50 * MS).flows == {}


def test_all_limits_are_charged_or_none() -> None:
    customer = policer(Enforcement(fill_rate=0, depth=10_000))
    site = policer(Enforcement(fill_rate=0, depth=1400))
    site.bucket.charge(400)
    assert not police([customer, site], flow(0), 1500, 0, RNG)
    assert customer.bucket.tokens == 10_000
    read = customer.read(50 * MS)
    # The customer's limit saw the packet; that the site refused it is not the customer's drop.
    assert (read.arrived_items, read.forwarded_items, read.dropped_items) == (1, 0, 0)
    assert site.read(50 * MS).dropped_items == 1
    assert police([customer, site], flow(0), 1000, 0, RNG)
    assert (customer.bucket.tokens, site.bucket.tokens) == (9000, 0)


def test_the_first_refusal_ends_the_check() -> None:
    customer = policer(Enforcement(fill_rate=0, depth=1400))
    site = policer(Enforcement(fill_rate=0, depth=1400))
    customer.bucket.charge(1)
    site.bucket.charge(1)
    assert not police([customer, site], flow(0), 1500, 0, RNG)
    assert customer.read(1).dropped_items == 1
    assert site.read(1).dropped_items == 0


def test_shadow_counts_its_drops_and_refuses_nothing() -> None:
    shadow = policer(Enforcement(fill_rate=0, depth=2000), Mode.SHADOW)
    site = policer(Enforcement(fill_rate=0, depth=4000))
    assert [police([shadow, site], flow(0), 1500, 0, RNG) for _ in range(3)] == [True, True, False]
    read = shadow.read(50 * MS)
    assert (read.forwarded_items, read.dropped_items) == (1, 2)
    assert site.read(50 * MS).forwarded_items == 2


def test_a_paused_limit_refuses_nothing() -> None:
    """The record of the mode before stays until the next tick."""
    paused = policer(Enforcement(drop_probability=1.0, fill_rate=0, depth=0), Mode.PAUSE)
    assert police([paused], flow(0), 1500, 0, RNG)
    paused.program(Enforcement(), (), 0)
    assert police([paused], flow(0), 1500, 0, RNG)
    read = paused.read(50 * MS)
    assert (read.forwarded_items, read.dropped_items) == (1, 1)


def test_random_drop_comes_first_and_takes_no_token() -> None:
    limit = policer(Enforcement(drop_probability=1.0, fill_rate=0, depth=3000))
    assert not police([limit], flow(0), 1500, 0, RNG)
    assert limit.bucket.tokens == 3000


def test_random_drop_has_the_probability_it_is_told() -> None:
    limit = policer(Enforcement(drop_probability=0.25))
    rng = Random(2)
    passed = sum(police([limit], flow(0), 100, 0, rng) for _ in range(10_000))
    assert 7350 <= passed <= 7650


def test_a_reload_keeps_tokens_and_counters() -> None:
    limit = policer(Enforcement(fill_rate=0, depth=2000))
    police([limit], flow(0), 1500, 0, RNG)
    limit.reconfigure(policy(mode=Mode.SHADOW))
    assert limit.bucket.tokens == 500
    assert police([limit], flow(0), 1500, 0, RNG)
    assert limit.read(1).arrived_items == 2


@pytest.mark.parametrize("kind", [None, SourcePrefix(24)])
def test_a_copy_goes_on_like_the_original_and_leaves_it_alone(kind: SourcePrefix | None) -> None:
    record = Enforcement(fill_rate=1000, depth=9000, flow_rate=500, flow_depth=4000, reserve=2000)
    first = Policer(policy(flow=kind), record, 0)
    for at in range(3):
        first.police(flow(at), 1500, at * MS, RNG)
    second, third = first.copy(), first.copy()
    verdicts = [second.police(flow(at % 4), 1500, at * MS, RNG) for at in range(3, 20)]
    assert {True, False} == set(map(bool, verdicts))
    assert verdicts == [first.police(flow(at % 4), 1500, at * MS, RNG) for at in range(3, 20)]
    assert first.read(50 * MS) == second.read(50 * MS)
    assert third.read(50 * MS).arrived_items == 3
