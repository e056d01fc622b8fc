"""The push-sum fabric, one limiter or two at a time."""

import math
from random import Random

import pytest

from drld.gossip.fabrics.pushsum import COUNTED, PushSum, settling_intervals
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import GlobalView, Quantity

from .. import wire
from .pushsum_pairs import TICK, acquainted, exchange, publish, push_sum, update


def test_the_first_update_says_that_no_peer_is_heard() -> None:
    fabric = push_sum()
    assert publish(fabric, 8.0, 0, Random(1)) == [("b", update(0, 0.0, 0.0))]
    assert (fabric.mass.value, fabric.mass.weight) == (8.0, 1.0)
    assert fabric.view(0) == GlobalView(remote=0.0, connected=frozenset(), age_ns=None)


def test_a_peer_that_does_not_hear_the_limiter_gets_no_share() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.0), 0)
    (_, sent) = publish(fabric, 8.0, 0, Random(1))[0]
    assert (sent.hears, sent.value, sent.weight) == (True, 0.0, 0.0)
    assert fabric.mass.weight == 1


def test_a_peer_that_hears_the_limiter_gets_a_share() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 2**-20), 0)
    (_, sent) = publish(fabric, 8.0, 0, Random(1))[0]
    assert sent.weight == pytest.approx(0.5, rel=1e-5)
    assert sent.value == pytest.approx(4.0, rel=1e-5)


def test_an_update_has_the_sum_of_all_shares() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.0, hears=True), 0)
    sums = [publish(fabric, 8.0, 0, Random(1))[0][1] for _ in range(3)]
    assert [sent.weight for sent in sums] == [0.5, 0.75, 0.875]
    assert [sent.value for sent in sums] == [4.0, 6.0, 7.0]
    assert (fabric.mass.value, fabric.mass.weight) == (1.0, 0.125)


def test_a_peer_that_stops_to_hear_the_limiter_is_told_the_sums_again() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.0, hears=True), 0)
    publish(fabric, 8.0, 0, Random(1))
    fabric.receive("b", update(1, 0.0, 0.0), TICK)
    assert publish(fabric, 8.0, TICK, Random(1))[0][1].weight == 0.5
    assert fabric.mass.weight == 0.5


def test_a_silent_peer_gets_no_share() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.1), 0)
    publish(fabric, 8.0, 0, Random(1))
    assert publish(fabric, 8.0, 4 * TICK, Random(1))[0][1].weight > 0.2
    kept = fabric.mass.weight
    assert publish(fabric, 8.0, 4 * TICK + 1, Random(1))[0][1].weight == 0
    assert fabric.mass.weight == kept


def test_two_limiters_agree_as_soon_as_they_may() -> None:
    a, b = push_sum(), push_sum("a", "b")
    demand = {"a": 100.0, "b": 30.0}
    settling = settling_intervals(2, 1)
    for interval in range(settling + 1):
        assert a.view(interval * TICK).connected == frozenset()
        exchange(a, b, range(interval, interval + 1), demand)
    now = (settling + 1) * TICK
    assert a.view(now).remote == pytest.approx(30.0, rel=1e-5)
    assert b.view(now).remote == pytest.approx(100.0, rel=1e-5)
    assert a.view(now).connected == {"b"}
    assert a.view(now).age_ns == TICK // 2


def test_two_limiters_know_a_change_at_once() -> None:
    a, b = acquainted()
    exchange(a, b, range(10, 11), {"a": 500.0, "b": 30.0})
    assert a.view(11 * TICK).remote == pytest.approx(30.0, rel=1e-5)
    assert b.view(11 * TICK).remote == pytest.approx(500.0, rel=1e-5)


def test_a_limiter_does_not_take_its_own_change_for_the_others() -> None:
    a, _ = acquainted()
    publish(a, 900.0, 10 * TICK, Random(1))
    assert a.view(10 * TICK).remote == pytest.approx(30.0, rel=1e-5)
    # Nor while nothing comes back.
    publish(a, 1900.0, 11 * TICK, Random(1))
    assert a.view(11 * TICK).remote == pytest.approx(30.0, rel=1e-5)


def test_a_fleet_that_falls_idle_is_exactly_zero_again() -> None:
    a, b = push_sum(), push_sum("a", "b")
    exchange(a, b, range(20), {"a": 1e9, "b": 3.3})
    exchange(a, b, range(20, 80), {"a": 0.0, "b": 0.0})
    assert a.view(80 * TICK).remote == b.view(80 * TICK).remote == 0.0


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, MAX_VALUE * 2])
def test_an_impossible_value_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="shared value"):
        publish(push_sum(), value, 0, Random(1))


def test_another_quantity_is_rejected() -> None:
    fabric = push_sum()
    fabric.receive("b", wire.pushsum(7, 0, 1.0, 1.0, Quantity.WEIGHT), 0)
    assert fabric.mass.weight == 1.0
    assert fabric.view(0).connected == frozenset()
    assert (fabric.links["b"].rejected, fabric.links["b"].received) == (1, 0)


def test_the_mass_of_lost_updates_comes_with_the_next() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 1.0, 0.25), 0)
    fabric.receive("b", update(3, 5.0, 0.75), TICK)
    assert (fabric.mass.value, fabric.mass.weight) == (5.0, 1.75)
    fabric.receive("b", update(2, 4.0, 0.5), TICK)
    fabric.receive("b", update(3, 5.0, 0.75), TICK)
    assert (fabric.mass.value, fabric.mass.weight) == (5.0, 1.75)
    stats = fabric.links["b"]
    assert (stats.received, stats.lost, stats.late) == (2, 2, 1)


def test_shares_are_smaller_while_updates_are_lost() -> None:
    """The part of a share in what stays: 1 / (1 + lost updates for each that comes), and 1."""
    fabric = push_sum()
    for arrived in range(8 * COUNTED):
        fabric.receive("b", update(4 * arrived, 0.0, 0.0, hears=True), arrived * TICK)
    kept = fabric.mass.weight
    now = 8 * COUNTED * TICK
    (_, sent) = publish(fabric, 8.0, now, Random(1))[0]
    assert sent.weight == pytest.approx(kept * 0.25 / 1.25, rel=1e-3)
    for arrived in range(8 * COUNTED):
        sequence = 32 * COUNTED + arrived
        fabric.receive("b", update(sequence, 0.0, 0.0, hears=True), now + arrived * TICK)
    kept = fabric.mass.weight
    (_, more) = publish(fabric, 8.0, now + 8 * COUNTED * TICK, Random(1))[0]
    assert more.weight - sent.weight == pytest.approx(kept / 2, rel=1e-3)


@pytest.mark.parametrize("lost", [8, 40])
def test_an_outage_is_not_taken_for_steady_loss(lost: int) -> None:
    """Of any length: one of 64 updates that come follows a gap."""
    fabric = push_sum()
    for sequence in range(2 * COUNTED):
        fabric.receive("b", update(sequence, 0.0, 0.0, hears=True), sequence * TICK)
    after = 2 * COUNTED + lost
    fabric.receive("b", update(after, 0.0, 0.0, hears=True), after * TICK)
    (_, sent) = publish(fabric, 8.0, after * TICK, Random(1))[0]
    assert 0.49 < sent.weight < 0.5


def fell_quiet() -> tuple[PushSum, PushSum, int]:
    """Two limiters that knew each other, and want nothing any more; and the interval."""
    a, b = acquainted()
    exchange(a, b, range(10, 100), {"a": 0.0, "b": 0.0})
    assert a.quiet
    assert b.quiet
    return a, b, 100


def test_a_fleet_without_demand_sends_no_update() -> None:
    a, b, now = fell_quiet()
    for fabric in (a, b):
        assert publish(fabric, 0.0, now * TICK, Random(1)) == []
        view = fabric.view(now * TICK)
        assert (view.remote, len(view.connected)) == (0.0, 1)


def test_the_first_demand_after_silence_is_known_at_once() -> None:
    a, b, now = fell_quiet()
    for step in range(6):
        exchange(a, b, range(now + step, now + step + 1), {"a": 500.0, "b": 0.0})
        after = (now + step + 1) * TICK
        assert a.view(after) == GlobalView(0.0, frozenset("b"), age_ns=TICK // 2)
        # The one that wakes the other keeps no share of its weight before it answers.
        assert b.view(after).remote == pytest.approx(500.0, rel=1e-5 if step else 0.34)
    assert a.epoch == b.epoch
    exchange(a, b, range(now + 6, now + 7), {"a": 500.0, "b": 70.0})
    assert a.view((now + 7) * TICK).remote == pytest.approx(70.0, rel=1e-5)
    assert a.mass.weight + b.mass.weight == pytest.approx(2.0)


def test_two_limiters_may_wake_up_at_once() -> None:
    a, b, now = fell_quiet()
    exchange(a, b, range(now, now + 3), {"a": 500.0, "b": 70.0})
    assert a.view((now + 3) * TICK).remote == pytest.approx(70.0, rel=1e-5)
    assert b.view((now + 3) * TICK).remote == pytest.approx(500.0, rel=1e-5)


def test_silence_is_no_knowledge_before_the_membership_is_steady() -> None:
    fabric = push_sum("bc")
    fabric.membership.hear("b", hears_us=True, now_ns=0)
    assert fabric.view(TICK).connected == frozenset()
    publish(fabric, 8.0, TICK, Random(1))
    assert fabric.view(TICK).connected == frozenset()
    steady = push_sum("bc")
    for interval in range(6):
        steady.membership.hear("b", hears_us=True, now_ns=interval * TICK)
        steady.membership.connected(interval * TICK)
    assert steady.view(5 * TICK).connected == {"b"}
    publish(steady, 8.0, 5 * TICK, Random(1))
    assert steady.view(5 * TICK).connected == {"b"}


def test_a_quiet_limiter_answers_a_pair_of_an_older_epoch() -> None:
    a, b, now = fell_quiet()
    a.epoch = 5
    sequence = b._link("a").sequences.take()
    a.receive("b", update(sequence, 3.0, 0.5, epoch=4), now * TICK)
    ((_, sent),) = publish(a, 0.0, now * TICK, Random(1))
    assert sent.epoch == 5
    assert publish(a, 0.0, (now + 1) * TICK, Random(1)) == []


def test_a_peer_is_connected_as_soon_as_it_confirms() -> None:
    fabric = push_sum("bcdefghijkl")
    fabric.receive("c", update(0, 0.0, 0.1), 0)
    fabric.receive("b", update(0, 0.0, 0.0), 19 * TICK)
    assert fabric.view(19 * TICK).connected == {"c"}
    fabric.receive("b", update(1, 0.0, 0.1), 20 * TICK)
    assert fabric.view(20 * TICK).connected == {"b", "c"}
