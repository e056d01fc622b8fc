"""The push-sum fabric, one limiter or two at a time."""

import itertools
import math
from random import Random

import pytest

from drld.gossip.fabrics.membership import Timeouts
from drld.gossip.fabrics.pushsum import (
    EPOCH_LOSSES,
    MAX_COPIES,
    PushSum,
    PushsumMembership,
    newer,
    settling_intervals,
)
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT, PushsumUpdate
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import GlobalView, Quantity

from .. import wire

TICK = 50_000_000


def push_sum(peers: str = "b", name: str = "a", branching: int = 3) -> PushSum:
    membership = PushsumMembership(name, list(peers), PushSum.fanout(branching), TICK)
    return PushSum(membership=membership, limit_id=7, quantity=Quantity.RATE)


def publish(
    fabric: PushSum, value: float, now_ns: int, rng: Random
) -> list[tuple[str, PushsumUpdate]]:
    return fabric.publish(value, fabric.membership.targets(rng), now_ns)


def update(sequence: int, value: float, weight: float, epoch: int = 0) -> PushsumUpdate:
    return wire.pushsum(7, sequence, value, weight, epoch=epoch)


def exchange(a: PushSum, b: PushSum, intervals: range, demand: dict[str, float]) -> None:
    """Both tick at once; updates, or heartbeats, arrive before the next tick."""
    rng = Random(1)
    for interval in intervals:
        now = interval * TICK
        for fabric in (a, b):
            fabric.view(now)
        sent = [
            (fabric, other, [u for _, u in publish(other, demand[other.membership.name], now, rng)])
            for fabric, other in ((b, a), (a, b))
        ]
        for fabric, other, updates in sent:
            fabric.membership.hear(other.membership.name, hears_us=True, now_ns=now + TICK // 2)
            for u in updates:
                fabric.receive(other.membership.name, u, now + TICK // 2)


def acquainted() -> tuple[PushSum, PushSum]:
    """Two limiters that know what each other wants, 100 and 30, after ten intervals."""
    a, b = push_sum(), push_sum("a", "b")
    exchange(a, b, range(10), {"a": 100.0, "b": 30.0})
    return a, b


@pytest.mark.parametrize(
    ("epoch", "reference", "is_newer"),
    [
        (1, 0, True),
        (0, 1, False),
        (3, 3, False),
        (7, 0, True),
        (9, 0, False),
        (0, 9, True),
        (2, 14, True),
        (14, 2, False),
        (8, 0, True),
        (0, 8, False),
        (15, 7, True),
        (7, 15, False),
    ],
)
def test_epochs_are_compared_in_serial_arithmetic(
    epoch: int, reference: int, is_newer: bool
) -> None:
    assert newer(epoch, reference) == is_newer


def test_of_two_epochs_exactly_one_is_newer() -> None:
    for a in range(16):
        for b in range(16):
            assert newer(a, b) + newer(b, a) == (a != b)


@pytest.mark.parametrize(
    ("members", "branching", "intervals"), [(1, 1, 3), (2, 1, 5), (10, 3, 7), (50, 3, 9)]
)
def test_settling_times_follow_from_size_and_branching(
    members: int, branching: int, intervals: int
) -> None:
    assert settling_intervals(members, branching) == intervals


def test_the_first_update_says_that_no_peer_is_heard() -> None:
    fabric = push_sum()
    assert publish(fabric, 8.0, 0, Random(1)) == [("b", update(0, 0.0, 0.0))]
    assert (fabric.mass.value, fabric.mass.weight) == (8.0, 1.0)
    assert fabric.view(0) == GlobalView(remote=0.0, connected=frozenset(), age_ns=None)


def test_a_peer_that_does_not_hear_us_gets_a_token() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.0), 0)
    (_, sent) = publish(fabric, 8.0, 0, Random(1))[0]
    assert (sent.value, sent.weight) == (8.0 * 2**-20, 2**-20)
    assert fabric.mass.weight == 1 - 2**-20


def test_a_peer_that_hears_us_gets_a_share() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 2**-20), 0)
    (_, sent) = publish(fabric, 8.0, 0, Random(1))[0]
    assert sent.weight == pytest.approx(0.5, rel=1e-5)
    assert sent.value == pytest.approx(4.0, rel=1e-5)


def test_a_silent_peer_gets_no_share() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.1), 0)
    publish(fabric, 8.0, 0, Random(1))
    assert publish(fabric, 8.0, 4 * TICK, Random(1))[0][1].weight > 0.2
    assert publish(fabric, 8.0, 4 * TICK + 1, Random(1))[0][1].weight == 0


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


def test_a_gap_is_compensated() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 1.0, 0.25), 0)
    fabric.receive("b", update(3, 1.0, 0.25), TICK)
    assert (fabric.mass.value, fabric.mass.weight) == (4.0, 2.0)
    fabric.receive("b", update(2, 1.0, 0.25), TICK)
    assert (fabric.mass.value, fabric.mass.weight) == (4.0, 2.0)
    stats = fabric.links["b"]
    assert (stats.received, stats.lost, stats.late) == (2, 2, 1)


def test_compensation_is_capped() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.25), 0)
    fabric.receive("b", update(10, 1.0, 0.25), TICK)
    assert fabric.mass.value == MAX_COPIES


def test_half_of_a_gap_is_compensated_at_the_begin_of_an_epoch() -> None:
    fabric = push_sum()
    fabric.receive("b", update(0, 0.0, 0.25), 0)
    fabric.receive("b", update(3, 1.0, 0.25, epoch=1), TICK)
    assert fabric.epoch == 1
    assert (fabric.mass.value, fabric.mass.weight) == (2.0, 1.5)


def test_a_newer_epoch_is_adopted_and_an_older_one_discarded() -> None:
    fabric = push_sum("bc")
    fabric.receive("b", update(0, 5.0, 0.5), 0)
    publish(fabric, 8.0, 0, Random(1))
    fabric.receive("c", update(0, 6.0, 0.5, epoch=1), TICK)
    assert fabric.epoch == 1
    assert (fabric.mass.value, fabric.mass.weight) == (14.0, 1.5)
    fabric.receive("b", update(1, 7.0, 0.5), TICK)
    assert fabric.epoch == 1
    assert (fabric.mass.value, fabric.mass.weight) == (14.0, 1.5)
    assert fabric.links["b"].received == 2


def test_a_newcomer_adopts_the_first_epoch_that_it_hears() -> None:
    for weight in (0.0, 0.5):
        fabric = push_sum()
        fabric.receive("b", update(0, 0.0, weight, epoch=12), 0)
        assert fabric.epoch == 12
        fabric.receive("b", update(1, 0.0, 0.0, epoch=13), TICK)
        assert fabric.epoch == 12


def test_the_view_holds_the_last_estimate_while_an_epoch_settles() -> None:
    a, _ = acquainted()
    a.view(10 * TICK)
    a.receive("b", update(10, 0.0, 0.5, epoch=1), 10 * TICK)
    settling = settling_intervals(2, 1)
    for interval in range(10, 10 + settling):
        view = a.view(interval * TICK)
        assert view.remote == pytest.approx(30.0, rel=1e-5)
        assert view.age_ns == (interval - 10) * TICK
    assert a.view((10 + settling) * TICK).remote == 0.0


def test_a_peer_that_is_gone_takes_its_mass_along() -> None:
    a, _ = acquainted()
    rng = Random(1)
    silence = Timeouts.of(TICK, TICK).silence_ns // TICK
    for interval in range(10, 10 + silence):
        a.view(interval * TICK)
        publish(a, 100.0, interval * TICK, rng)
        assert a.epoch == 0
    for interval in range(10 + silence, 13 + silence):
        view = a.view(interval * TICK)
        publish(a, 100.0, interval * TICK, rng)
    assert view == GlobalView(remote=0.0, connected=frozenset(), age_ns=None)
    assert a.epoch == 1
    assert (a.mass.value, a.mass.weight) == (100.0, 1.0)


def test_losses_begin_an_epoch_but_not_too_often() -> None:
    fabric = push_sum()
    rng = Random(1)
    begun = []
    sequence = 0
    for interval in range(60):
        fabric.receive("b", update(sequence, 0.0, 0.1, fabric.epoch), interval * TICK)
        sequence += EPOCH_LOSSES + 1
        epoch = fabric.epoch
        publish(fabric, 1.0, interval * TICK, rng)
        if fabric.epoch != epoch:
            begun.append(interval)
    assert len(begun) >= 4
    assert {b - a for a, b in itertools.pairwise(begun)} == {2 * settling_intervals(2, 1)}


def test_losses_count_in_their_own_epoch_only() -> None:
    fabric = push_sum()
    rng = Random(1)
    fabric.receive("b", update(0, 0.0, 0.1), 0)
    fabric.receive("b", update(1 + EPOCH_LOSSES, 0.0, 0.1), 0)
    for interval in range(50):
        sequence = 2 + EPOCH_LOSSES + interval
        fabric.receive("b", update(sequence, 0.0, 0.1, fabric.epoch), interval * TICK)
        publish(fabric, 1.0, interval * TICK, rng)
    assert fabric.epoch == 1


def test_a_restarted_peer_begins_an_epoch() -> None:
    fabric = push_sum()
    rng = Random(1)
    for interval in range(20):
        fabric.receive("b", update(interval, 1.0, 0.1), interval * TICK)
    publish(fabric, 1.0, 20 * TICK, rng)
    assert fabric.epoch == 0
    assert fabric.membership.on_session("b", 20 * TICK) == [7]
    fabric.on_session("b")
    fabric.receive("b", update(0, 1.0, 0.1), 21 * TICK)
    assert fabric.links["b"].late == 0
    (own,) = publish(fabric, 1.0, 21 * TICK, rng)
    assert fabric.epoch == 1
    assert own[1].sequence == 0


def test_a_reload_that_removes_a_peer_begins_an_epoch() -> None:
    fabric = push_sum("bc")
    fabric.receive("b", update(0, 1.0, 0.1), 0)
    fabric.receive("c", update(0, 0.0, 2**-20), 0)
    assert fabric.view(15 * TICK).connected == {"b", "c"}
    fabric.membership.set_peers("cd")
    fabric.set_peers()
    assert set(fabric.links) == {"c"}
    assert fabric.view(15 * TICK).connected == {"c"}
    publish(fabric, 1.0, 15 * TICK, Random(1))
    assert fabric.epoch == 1
    assert fabric.links["c"].received == 1


def test_a_reload_that_adds_a_peer_begins_none() -> None:
    fabric = push_sum("b")
    fabric.receive("b", update(0, 1.0, 0.1), 0)
    fabric.membership.set_peers("bc")
    fabric.set_peers()
    sent = publish(fabric, 1.0, TICK, Random(1))
    assert {peer for peer, _ in sent} == {"b", "c"}
    assert fabric.epoch == 0


def test_mass_beyond_the_wire_begins_an_epoch() -> None:
    fabric = push_sum()
    for sequence in range(4):
        fabric.receive("b", update(sequence, 0.0, MAX_WEIGHT), 0)
    sent = publish(fabric, 3.0, 0, Random(1))[0][1]
    assert fabric.epoch == 1
    assert sent.weight == 0.5
    for sequence in range(4, 8):
        fabric.receive("b", update(sequence, -MAX_VALUE, 0.1, epoch=1), TICK)
    assert publish(fabric, 3.0, TICK, Random(1))[0][1].epoch == 2


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


def isolated() -> tuple[PushSum, int]:
    """A limiter in epoch 2 that was connected and then heard no peer; and the interval."""
    a, _ = acquainted()
    a.receive("b", update(10, 15.0, 0.5, epoch=1), 10 * TICK)
    for interval in range(10, 50):
        a.view(interval * TICK)
        publish(a, 100.0, interval * TICK, Random(1))
    assert a.epoch == 2
    return a, 50


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_an_isolated_limiter_joins_any_epoch(epoch: int) -> None:
    fabric, interval = isolated()
    fabric.receive("b", update(11, 0.0, 0.5, epoch), interval * TICK)
    assert fabric.epoch == epoch


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_limiter_that_was_isolated_believes_no_peer_until_the_epoch_settles(epoch: int) -> None:
    fabric, interval = isolated()
    settling = settling_intervals(2, 1)
    for now in range(interval, interval + settling):
        fabric.receive("b", update(11 + now - interval, 60.0, 0.5, epoch), now * TICK)
        assert fabric.view(now * TICK) == GlobalView(0.0, frozenset(), None)
    view = fabric.view((interval + settling) * TICK)
    assert view.connected == {"b"}
    assert view.remote > 30
