"""The (value, weight) pair of push-sum."""

import pytest

from drld.gossip.fabrics.pushsum_pair import MIN_WEIGHT, NOTHING, RESOLUTION, Mass, Pair
from drld.gossip.fabrics.pushsum_update import MAX_WEIGHT
from drld.gossip.wire.update_codec import MAX_VALUE, to_float32


def mass(own: float) -> Mass:
    made = Mass()
    made.change_own(own)
    return made


def test_shares_are_equal_and_exact() -> None:
    pool = mass(0.3)
    first, second = pool.split([NOTHING, NOTHING])
    assert first == second
    assert first.weight < 1 / 3 < first.weight + 2**-25, "the largest float32 below 1/3"
    assert first.value == to_float32(0.3 * first.weight)
    assert pool.value == 0.3 - 2 * first.value
    assert pool.weight == 1 - 2 * first.weight


def test_a_share_is_added_to_the_sums_of_its_link() -> None:
    pool = mass(8.0)
    assert pool.split([Pair(3.0, 0.5), Pair(-1.0, 0.25)], 0.5) == [Pair(5.0, 0.75), Pair(1.0, 0.5)]
    assert (pool.value, pool.weight) == (4.0, 0.5)


def test_rounding_does_not_change_the_ratio() -> None:
    """Half of the weight is below a unit of the sum, so nothing leaves, of the value neither."""
    pool = mass(8.0)
    sums = Pair(1e9, 2.0**19)
    pool.weight = 2.0**-6
    assert pool.split([sums]) == [sums]
    assert (pool.value, pool.weight) == (8.0, 2.0**-6)


@pytest.mark.parametrize(
    ("rest", "coarse"),
    [(0.0, False), (1e-4, True), (-1e-4, True), (61.0, True), (62.0, False), (-62.0, False)],
)
def test_a_demand_that_rounding_distorts_is_told_from_others(rest: float, coarse: bool) -> None:
    """Sums of a million, of which 2**-13 is 122.1, and a weight of a half."""
    pool = mass(2e6)
    pool.split([NOTHING])
    pool.value = rest
    assert pool.coarse == coarse


def test_one_limiter_alone_has_no_remote_demand() -> None:
    pool = mass(5.0)
    assert pool.split([]) == []
    assert (pool.value, pool.weight) == (5.0, 1.0)
    assert pool.remote(1) == 0.0


@pytest.mark.parametrize(
    ("own", "added", "value", "remote"),
    [
        pytest.param(10.0, Pair(20.0, 0.5), 25.0, 40.0, id="the ratio is the mean"),
        pytest.param(10.0, Pair(40.0, 4.0), 45.0, 10.0, id="a large pair is mixed"),
        pytest.param(10.0, Pair(-50.0, 0.5), -45.0, 0.0, id="it is never negative"),
    ],
)
def test_remote_is_the_mean_for_each_without_the_own(
    own: float, added: Pair, value: float, remote: float
) -> None:
    pool = mass(own)
    pool.split([NOTHING])
    pool.add(added, peers=1)
    assert (pool.value, pool.weight) == (value, 0.5 + added.weight)
    assert pool.remote(2) == remote


def test_a_demand_below_the_resolution_is_zero() -> None:
    pool = mass(0.0)
    pool.add(Pair(RESOLUTION * 0.99, 1.0), peers=1)
    assert pool.remote(2) == 0.0
    pool.add(Pair(RESOLUTION, 1.0), peers=1)
    assert pool.remote(3) > RESOLUTION


def test_a_fresh_start_keeps_the_own_demand() -> None:
    pool = mass(10.0)
    pool.split([NOTHING] * 3)
    pool.add(Pair(70.0, 2.0), peers=4)
    pool.restart()
    assert (pool.own, pool.value, pool.weight) == (10.0, 10.0, 1.0)
    assert pool.remote(5) == 0.0


@pytest.mark.parametrize(
    ("pair", "sound"),
    [
        (Pair(MAX_VALUE, MAX_WEIGHT - 1), True),
        (Pair(MAX_VALUE * 1.01, 0.0), False),
        (Pair(-MAX_VALUE * 1.01, 0.0), False),
        (Pair(0.0, MAX_WEIGHT), False),
    ],
)
def test_a_pair_is_sound_if_it_can_be_believed(pair: Pair, sound: bool) -> None:
    pool = mass(0.0)
    pool.add(pair, peers=1)
    assert pool.sound == sound


def test_a_weight_that_withers_is_not_sound() -> None:
    pool = mass(0.0)
    for _ in range(64):
        pool.split([NOTHING])
    assert pool.weight == MIN_WEIGHT
    assert pool.sound
    pool.split([NOTHING])
    assert not pool.sound
