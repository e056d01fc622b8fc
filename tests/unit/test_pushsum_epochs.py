"""Epochs of the push-sum fabric: their order, the reasons to begin one, and their settling."""

import itertools
from random import Random

import pytest

from drld.gossip.fabrics.membership import Timeouts
from drld.gossip.fabrics.pushsum import COUNTED, PushSum, newer, settling_intervals
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT
from drld.gossip.fabrics.quiescence import QUIET_ROUNDS
from drld.gossip.wire.update_codec import MAX_VALUE
from drld.model import GlobalView

from .pushsum_pairs import TICK, acquainted, publish, push_sum, update


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


def test_exactly_one_of_two_epochs_is_newer() -> None:
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


def test_sums_begin_anew_in_each_epoch() -> None:
    """So the first update of an epoch brings what was lost in it."""
    fabric = push_sum()
    fabric.receive("b", update(0, 9.0, 0.75), 0)
    publish(fabric, 8.0, 0, Random(1))
    fabric.receive("b", update(3, 4.0, 0.5, epoch=1), TICK)
    assert fabric.epoch == 1
    assert (fabric.mass.value, fabric.mass.weight) == (12.0, 1.5)
    ((_, sent),) = publish(fabric, 8.0, TICK, Random(1))
    assert sent.epoch == 1
    assert sent.weight == pytest.approx(0.5, rel=0.02), "a half of what stays: one of two was lost"


def test_sums_that_shrink_begin_an_epoch() -> None:
    """The peer was in another epoch meanwhile, so what it had taken is in none."""
    fabric = push_sum()
    for sequence in range(20):
        fabric.receive("b", update(sequence, 3.0, 0.75), sequence * TICK)
    assert (fabric.mass.value, fabric.mass.weight) == (3.0, 1.75)
    fabric.receive("b", update(20, 1.0, 0.5), 20 * TICK)
    assert (fabric.mass.value, fabric.mass.weight) == (4.0, 2.25)
    publish(fabric, 0.0, 20 * TICK, Random(1))
    assert fabric.epoch == 1


@pytest.mark.parametrize("demand", [0.0, 1e3])
def test_a_rest_of_rounding_begins_an_epoch(demand: float) -> None:
    """Also with a demand that is less than the rounding of the sums."""
    fabric = push_sum()
    for interval in range(20):
        fabric.receive("b", update(interval, 1e9 * interval, 0.5 * interval), interval * TICK)
        publish(fabric, 1e9, interval * TICK, Random(1))
    publish(fabric, demand, 20 * TICK, Random(1))
    fabric.mass.value = 64.0
    for interval in range(QUIET_ROUNDS - 2):
        publish(fabric, demand, (21 + interval) * TICK, Random(1))
    assert fabric.epoch == 0
    for interval in range(2):
        publish(fabric, demand, (30 + interval) * TICK, Random(1))
    assert fabric.epoch == 1
    assert fabric.mass.own == demand


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


def test_epochs_do_not_begin_too_often() -> None:
    """A peer whose sums shrink with each update."""
    fabric = push_sum()
    rng = Random(1)
    begun = []
    for interval in range(60):
        made = update(interval, 0.0, 0.1 / (interval + 1), fabric.epoch)
        fabric.receive("b", made, interval * TICK)
        epoch = fabric.epoch
        publish(fabric, 1.0, interval * TICK, rng)
        if fabric.epoch != epoch:
            begun.append(interval)
    assert len(begun) >= 4
    assert {b - a for a, b in itertools.pairwise(begun)} == {2 * settling_intervals(2, 1)}


def test_an_epoch_settles_later_if_updates_are_lost() -> None:
    """Three of four are lost: a share waits for four intervals instead of one."""
    a, _ = acquainted()
    for arrived in range(8 * COUNTED):
        now = (10 + arrived) * TICK
        a.receive("b", update(10 + 4 * arrived, 7.0, 0.75), now)
        a.view(now)
    begun = 10 + 8 * COUNTED
    sequence = 10 + 32 * COUNTED
    late = 4 * settling_intervals(2, 1)
    for interval in range(begun, begun + late):
        a.receive("b", update(sequence + 4 * (interval - begun), 9.0, 0.5, 1), interval * TICK)
        assert a.view(interval * TICK).age_ns == (interval - begun) * TICK
    a.receive("b", update(sequence + 4 * late, 9.0, 0.5, 1), (begun + late) * TICK)
    assert a.view((begun + late) * TICK).age_ns == 0


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
        fabric.receive("b", update(sequence, -MAX_VALUE, 0.8 - 0.1 * sequence, epoch=1), TICK)
    assert publish(fabric, 3.0, TICK, Random(1))[0][1].epoch == 2


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
