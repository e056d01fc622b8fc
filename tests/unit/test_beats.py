"""Threads that notice when a processor stands still."""

from __future__ import annotations

import os
import threading

from testbed.beats import Beats


def test_each_processor_is_watched_while_it_is_entered() -> None:
    before, own = threading.active_count(), os.sched_getaffinity(0)
    with Beats() as beats:
        assert threading.active_count() == before + len(own)
        assert os.sched_getaffinity(0) == own
    assert threading.active_count() == before
    assert beats.take() >= 0
    # What was told once is not told again.
    assert beats.take() == 0
