"""Liveness of one link: timeouts, denial, and who counts whom out first."""

import pytest

from drld.gossip.link import Link, Timeouts
from drld.model import NS_PER_S, Quantity, Update

TICK = 50_000_000


def update(sequence: int, hears: bool = True) -> Update:
    return Update(1, sequence, Quantity.RATE, 0, 0.0, 1.0 if hears else 0.0)


@pytest.mark.parametrize(
    ("cycle", "fresh", "silence", "denial"), [(1, 4, 24, 17), (3, 8, 68, 53), (17, 36, 376, 305)]
)
def test_timeouts(cycle: int, fresh: int, silence: int, denial: int) -> None:
    """Mesh or two limiters; ten with branching 3; fifty with branching 3."""
    assert Timeouts.of(TICK, cycle * TICK) == Timeouts(fresh * TICK, silence * TICK, denial * TICK)


def test_the_documented_seconds() -> None:
    for cycle, seconds in ((1, 1.2), (3, 3.4), (17, 18.8)):
        assert Timeouts.of(TICK, cycle * TICK).silence_ns == round(seconds * NS_PER_S)


def test_nobody_is_connected_before_he_is_heard() -> None:
    link, timeouts = Link(), Timeouts.of(TICK, TICK)
    assert not link.connected(0, timeouts)
    assert not link.fresh(0, timeouts)


def test_hearing_is_not_enough() -> None:
    link, timeouts = Link(), Timeouts.of(TICK, TICK)
    link.accept(update(0, hears=False), 0)
    assert link.fresh(0, timeouts)
    assert not link.both_ways(0, timeouts)
    assert not link.connected(0, timeouts)
    link.accept(update(1), TICK)
    assert link.both_ways(TICK, timeouts)
    assert link.connected(TICK, timeouts)


def test_silence_ends_a_connection() -> None:
    link, timeouts = Link(), Timeouts.of(TICK, TICK)
    link.accept(update(0), 0)
    assert link.fresh(timeouts.fresh_ns, timeouts)
    assert not link.fresh(timeouts.fresh_ns + 1, timeouts)
    assert link.connected(timeouts.silence_ns, timeouts)
    assert not link.connected(timeouts.silence_ns + 1, timeouts)


def test_discarded_updates_keep_nobody_alive() -> None:
    link, timeouts = Link(), Timeouts.of(TICK, TICK)
    link.accept(update(10), 0)
    for interval in range(1, 40):
        assert link.accept(update(10), interval * TICK) is None
    assert link.stats.last_heard_ns == 0
    assert link.stats.late == 39
    assert not link.connected(40 * TICK, timeouts)


def test_denial_ends_a_connection_although_updates_come() -> None:
    link, timeouts = Link(), Timeouts.of(TICK, TICK)
    link.accept(update(0), 0)
    for interval in range(1, 18):
        link.accept(update(interval, hears=False), interval * TICK)
        assert not link.both_ways(interval * TICK, timeouts)
        assert link.connected(interval * TICK, timeouts)
    link.accept(update(18, hears=False), 18 * TICK)
    assert not link.connected(18 * TICK, timeouts)


@pytest.mark.parametrize("cycle", [1, 3, 17])
def test_the_unheard_end_gives_up_before_the_deaf_end_counts_it_out(cycle: int) -> None:
    """a -> b breaks; updates b -> a go on, delayed by an interval."""
    timeouts = Timeouts.of(TICK, cycle * TICK)
    a_of_b, b_of_a = Link(), Link()
    a_of_b.accept(update(0), 0)
    b_of_a.accept(update(0), 0)
    gave_up = counted_out = None
    for interval in range(1, 30 * cycle):
        now = interval * TICK
        if interval % cycle == 0:
            hears = b_of_a.fresh(now, timeouts)
            a_of_b.accept(update(interval, hears), now + TICK)
        if gave_up is None and not a_of_b.connected(now + TICK, timeouts):
            gave_up = interval + 1
        if counted_out is None and not b_of_a.connected(now, timeouts):
            counted_out = interval
    assert gave_up is not None
    assert counted_out is not None
    # A fabric may notice up to a cycle late.
    assert gave_up + cycle <= counted_out


def test_numbers_count_from_zero_and_wrap() -> None:
    link = Link()
    assert [link.take_sequence() for _ in range(3)] == [0, 1, 2]
    link._next_sequence = 2**32 - 1
    assert [link.take_sequence() for _ in range(2)] == [2**32 - 1, 0]


def test_statistics() -> None:
    link = Link()
    for sequence in (0, 3, 2, 3, 4):
        link.accept(update(sequence), sequence)
    assert (link.stats.received, link.stats.lost, link.stats.late) == (3, 2, 2)
    assert link.stats.last_heard_ns == 4
