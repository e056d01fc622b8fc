"""Which time a packet is charged at."""

from __future__ import annotations

import pytest

from drld.model import NS_PER_S
from drld.police.arrival_time import LATEST_NS, SLACK_NS, ArrivalTimes

MS = 1_000_000
WALL_NS = 1_800_000_000 * NS_PER_S
"""The wall clock's lead at first, ns."""


class Clocks:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 100 * NS_PER_S
        self.offset_ns = WALL_NS
        self.interrupted = False

    def monotonic(self) -> int:
        self.now_ns += MS if self.interrupted else 0
        return self.now_ns

    def wall(self) -> int:
        return self.now_ns + self.offset_ns

    def wait(self, duration_ns: int) -> None:
        self.now_ns += duration_ns


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def times(clocks: Clocks) -> ArrivalTimes:
    return ArrivalTimes(clocks.monotonic, clocks.wall)


def charged(times: ArrivalTimes) -> tuple[int, int, int]:
    return times.ebpf, times.kernel, times.read


def stamp(time_ns: int) -> float:
    """A stamp as the queue's library gives it: whole microseconds, in seconds."""
    return time_ns // 1000 / 1e6


def test_a_monotonic_stamp_is_the_arrival(clocks: Clocks, times: ArrivalTimes) -> None:
    arrived_ns = clocks.now_ns
    clocks.wait(300 * MS)
    assert abs(times.arrival_ns(stamp(arrived_ns)) - arrived_ns) <= 1000
    assert charged(times) == (1, 0, 0)


def test_a_wall_clock_stamp_is_converted(clocks: Clocks, times: ArrivalTimes) -> None:
    arrived_ns = clocks.now_ns
    clocks.wait(300 * MS)
    assert abs(times.arrival_ns(stamp(arrived_ns + WALL_NS)) - arrived_ns) <= 2000
    assert charged(times) == (0, 1, 0)


def test_a_wall_clock_stamp_of_this_moment_is_not_later_than_the_reading(
    clocks: Clocks, times: ArrivalTimes
) -> None:
    """The two clocks are read one after the other."""
    assert times.arrival_ns(stamp(clocks.wall() + 20_000)) == clocks.now_ns
    assert charged(times) == (0, 1, 0)


def test_a_packet_without_a_stamp_arrives_when_it_is_read(
    clocks: Clocks, times: ArrivalTimes
) -> None:
    clocks.wait(300 * MS)
    assert times.arrival_ns(0.0) == clocks.now_ns
    assert charged(times) == (0, 0, 1)


@pytest.mark.parametrize("age_ns", [-2 * MS, -NS_PER_S, SLACK_NS + MS, 50 * NS_PER_S])
@pytest.mark.parametrize("offset_ns", [0, WALL_NS])
def test_an_impossible_arrival_time_is_replaced_by_the_reading_time(
    clocks: Clocks, times: ArrivalTimes, age_ns: int, offset_ns: int
) -> None:
    clocks.wait(50 * MS)
    times.emptied(clocks.now_ns)
    assert times.arrival_ns(stamp(clocks.now_ns - age_ns + offset_ns)) == clocks.now_ns
    assert charged(times) == (0, 0, 1)


def test_a_packet_may_be_as_old_as_the_queue_has_not_been_empty(
    clocks: Clocks, times: ArrivalTimes
) -> None:
    arrived_ns = clocks.now_ns
    clocks.wait(600 * NS_PER_S)  # a daemon that was frozen
    assert abs(times.arrival_ns(stamp(arrived_ns)) - arrived_ns) <= 1000
    times.emptied(clocks.now_ns)
    assert times.arrival_ns(stamp(arrived_ns)) == clocks.now_ns


@pytest.mark.parametrize("offset_ns", [0, WALL_NS])
def test_packets_that_waited_for_a_frozen_daemon_are_not_charged_at_once(
    clocks: Clocks, times: ArrivalTimes, offset_ns: int
) -> None:
    arrived_ns = clocks.now_ns
    clocks.wait(10 * NS_PER_S)
    times.turn(clocks.now_ns)
    floor_ns = clocks.now_ns - LATEST_NS
    for age_ns in (10 * NS_PER_S, 5 * NS_PER_S, LATEST_NS + MS):
        assert times.arrival_ns(stamp(clocks.now_ns - age_ns + offset_ns)) == floor_ns
    assert times.settled_ns() == floor_ns > arrived_ns
    recent_ns = clocks.now_ns - LATEST_NS + 5 * MS
    assert abs(times.arrival_ns(stamp(recent_ns + offset_ns)) - recent_ns) <= 1000


def test_the_wall_clock_may_be_slewed(clocks: Clocks, times: ArrivalTimes) -> None:
    for _ in range(100):
        clocks.wait(20 * MS)
        clocks.offset_ns += 2 * MS  # a tenth
        times.arrival_ns(stamp(clocks.wall() - 10 * MS))
        times.emptied(clocks.now_ns)
    assert charged(times) == (0, 100, 0)


@pytest.mark.parametrize("step_ns", [3600 * NS_PER_S, -3600 * NS_PER_S, 40 * MS, -40 * MS])
def test_a_wall_clock_that_was_set_is_not_trusted_until_the_queue_has_been_empty(
    clocks: Clocks, times: ArrivalTimes, step_ns: int
) -> None:
    before = stamp(clocks.wall())
    clocks.wait(100 * MS)
    clocks.offset_ns += step_ns
    after = stamp(clocks.wall())
    clocks.wait(100 * MS)
    assert times.arrival_ns(before) == clocks.now_ns
    assert times.arrival_ns(after) == clocks.now_ns
    assert charged(times) == (0, 0, 2)
    times.emptied(clocks.now_ns)
    arrived_ns = clocks.now_ns
    clocks.wait(20 * MS)
    assert abs(times.arrival_ns(stamp(arrived_ns + clocks.offset_ns)) - arrived_ns) <= 2000


def test_a_wall_clock_that_was_set_does_not_touch_monotonic_stamps(
    clocks: Clocks, times: ArrivalTimes
) -> None:
    arrived_ns = clocks.now_ns
    clocks.wait(100 * MS)
    clocks.offset_ns += 3600 * NS_PER_S
    times.arrival_ns(stamp(clocks.wall()))
    assert abs(times.arrival_ns(stamp(arrived_ns)) - arrived_ns) <= 1000


def test_clocks_that_cannot_be_read_together_convert_nothing(clocks: Clocks) -> None:
    clocks.interrupted = True
    times = ArrivalTimes(clocks.monotonic, clocks.wall)
    times.arrival_ns(stamp(clocks.wall()))
    assert charged(times) == (0, 0, 1)
    clocks.interrupted = False
    times.arrival_ns(stamp(clocks.wall()))
    assert charged(times) == (0, 1, 1)


# Up to when packets are judged


def test_an_empty_queue_is_settled_at_that_time(clocks: Clocks, times: ArrivalTimes) -> None:
    clocks.wait(50 * MS)
    times.emptied(clocks.now_ns)
    assert times.settled_ns() == clocks.now_ns


def test_a_queue_with_late_packets_is_settled_where_they_begin(
    clocks: Clocks, times: ArrivalTimes
) -> None:
    empty_ns = clocks.now_ns
    clocks.wait(50 * MS)
    assert times.settled_ns() == empty_ns
    times.arrival_ns(stamp(empty_ns + 10 * MS))
    times.arrival_ns(0.0)
    assert times.settled_ns() == empty_ns + 10 * MS
    times.arrival_ns(stamp(empty_ns - 5 * MS))  # from another CPU
    assert times.settled_ns() == empty_ns


def test_packets_without_stamps_are_judged_in_the_present(
    clocks: Clocks, times: ArrivalTimes
) -> None:
    clocks.wait(50 * MS)
    times.arrival_ns(0.0)
    assert times.settled_ns() == clocks.now_ns
