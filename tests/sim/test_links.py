"""Links and timers of the simulator."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import TBF_BURST
from testbed.tcp.clock import Clock
from testbed.tcp.link import NOISE_NS, SPACING_NS, Link
from testbed.tcp.timer import JIFFY_NS, Timer, expiry_ns, whole_jiffies_ns

MS = 1_000_000
PACKET = 1500


class End:
    """Sends numbered packets into a link, and notes when they come out."""

    def __init__(self, loss: float = 0.0) -> None:
        self.clock = Clock()
        self.link = Link(self.clock, 20 * MS, Random(1), loss)
        self.came: list[tuple[int, int]] = []
        """(time, number)."""

    def send(self, count: int, gap_ns: int) -> None:
        for number in range(count):
            self.clock.at(number * gap_ns, self._send, number)

    def _send(self, number: int) -> None:
        self.link.send(PACKET, lambda packet: self.came.append((self.clock.now_ns, packet)), number)


def test_a_link_is_a_fifo_that_takes_its_delay() -> None:
    end = End()
    end.send(1000, 100_000)
    end.clock.run(1000 * MS)
    assert [number for _, number in end.came] == list(range(1000))
    assert all(time >= number * 100_000 + 20 * MS for time, number in end.came)


def test_packets_are_late_by_the_noise_on_average() -> None:
    end = End()
    end.send(1000, 10 * MS)
    end.clock.run(11_000 * MS)
    late = [time - number * 10 * MS - 20 * MS for time, number in end.came]
    assert min(late) >= 0
    assert 0.8 * NOISE_NS < sum(late) / len(late) < 1.2 * NOISE_NS


def test_packets_sent_together_arrive_one_after_the_other() -> None:
    end = End()
    end.send(100, 0)
    end.clock.run(1000 * MS)
    times = [time for time, _ in end.came]
    assert min(after - before for before, after in pairwise(times)) >= SPACING_NS


def test_losses_are_those_asked_for() -> None:
    end = End(loss=0.1)
    end.send(10_000, 1000)
    end.clock.run(1000 * MS)
    assert end.link.dropped + len(end.came) == 10_000
    assert 900 < end.link.dropped < 1100


def test_a_rate_shapes_and_a_full_queue_drops() -> None:
    end = End()
    end.link.set_rate(150_000, queue=15_000)
    end.send(1000, 5 * MS)
    end.clock.run(6000 * MS)
    times = [time for time, number in end.came]
    # Twice as much is sent as passes: 100 packets/s, and a burst and a queue.
    assert len(times) == pytest.approx(500 + 10 + 2, abs=2)
    steady = times[-200:]
    assert (steady[-1] - steady[0]) / 199 == pytest.approx(10 * MS, rel=0.01)
    assert end.link.dropped == 1000 - len(times)


@given(st.lists(st.integers(0, 30 * MS), min_size=1, max_size=60))
def test_no_more_than_rate_and_burst_passes(gaps: list[int]) -> None:
    end = End()
    rate = 150_000
    end.link.set_rate(rate, queue=10**6)
    now = 0
    for number, gap in enumerate(gaps):
        now += gap
        end.clock.at(now, end._send, number)
    end.clock.run(10**11)
    assert [number for _, number in end.came] == list(range(len(gaps)))
    times = [time for time, _ in end.came]
    for first, begin in enumerate(times):
        for last, until in enumerate(times[first:], first):
            assert (last - first + 1) * PACKET <= TBF_BURST + rate * (until - begin) / 1e9 + 1


def test_a_removed_rate_drops_waiting_packets_and_a_changed_one_keeps_them() -> None:
    end = End()
    end.link.set_rate(150_000, queue=10**6)
    end.send(50, 0)
    end.clock.run(100 * MS)
    passed = len(end.came)
    end.link.set_rate(1_500_000, queue=10**6)
    end.clock.run(130 * MS)
    assert len(end.came) == pytest.approx(passed + 32, abs=2)
    end.link.set_rate(None, 0)
    left = 50 - len(end.came)
    end.clock.run(1000 * MS)
    assert end.link.dropped == left
    assert len(end.came) == 50 - left


@given(st.integers(0, 10**10), st.integers(1, 10**11), st.integers(0, JIFFY_NS - 1))
def test_a_timer_is_never_early_and_as_late_as_the_wheel(now: int, delay: int, phase: int) -> None:
    granule = JIFFY_NS
    whole = whole_jiffies_ns(delay)
    assert 0 <= whole - delay < JIFFY_NS
    while whole >= 63 * granule:
        granule *= 8
    assert 0 < expiry_ns(now + delay, now, phase) - (now + whole) <= granule


def test_a_timer_fires_once_at_the_time_it_was_set_to_last() -> None:
    clock = Clock()
    fired: list[int] = []
    timer = Timer(clock, lambda: fired.append(clock.now_ns))
    timer.set(100 * MS)
    timer.set(200 * MS)
    clock.run(50 * MS)
    timer.set(20 * MS)
    clock.run(500 * MS)
    assert fired == [72 * MS]
    assert not timer.running
    timer.set(10 * MS)
    timer.stop()
    clock.run(1000 * MS)
    assert fired == [72 * MS]


def test_events_of_one_time_happen_in_the_order_of_their_scheduling() -> None:
    clock = Clock()
    done: list[str] = []
    for name in "abc":
        clock.at(5, done.append, name)
    clock.at(4, done.append, "first")
    clock.run(4)
    assert done == ["first"]
    clock.run(5)
    assert done == ["first", "a", "b", "c"]
