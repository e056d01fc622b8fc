"""Threads that notice when a processor stands still."""

from __future__ import annotations

import os
import threading

from testbed.beats import Beats, kept


def test_each_processor_is_watched_while_it_is_entered() -> None:
    before, own = threading.active_count(), os.sched_getaffinity(0)
    with Beats() as beats:
        assert threading.active_count() == before + len(own)
        assert os.sched_getaffinity(0) == own
    assert threading.active_count() == before
    assert beats.take() >= 0
    # What was told once is not told again.
    assert beats.take() == 0


def test_a_share_of_the_beats_may_be_later() -> None:
    late_s = [0.3, *(0.001 for _ in range(98)), 0.002]
    assert kept(late_s, 1.0) == 0.3
    assert kept(late_s, 0.99) == 0.002
    assert kept(late_s, 0.98) == 0.001
    assert kept([], 0.99) == 0
