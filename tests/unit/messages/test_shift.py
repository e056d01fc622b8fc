"""`python -m testbed.messages shift`: what it has sent, and what it shows of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from testbed.messages.plot_shift import binned, draw
from testbed.messages.shift import DEMAND, PUBLISHERS, RATE, phases, places, schedule, table

RESULT = {
    "seconds": 30.0, "moves_s": 12.0, "rate": RATE,
    "delays_s": [[(1.0, 0.5), (10.0, 0.2), (13.0, 0.0)], [(11.0, 0.0), (13.0, 0.7), (29.9, 0.01)]],
    "parts": [[(0.0, 100.0), (20.0, 60.0)], [(0.0, 100.0), (20.0, 140.0)]],
}  # fmt: skip


def test_publishers_move_and_send_as_much_as_before() -> None:
    planned, place_of = schedule(Random(1), 200.0, 100.0), places()
    sent: Counter[tuple[bool, int]] = Counter()
    for at_ns, publisher in planned:
        moved = publisher >= PUBLISHERS
        assert moved == (at_ns >= 100e9)
        sent[moved, place_of[publisher]] += 1
    each = DEMAND * RATE * 100
    assert [sent[False, 0], sent[False, 1]] == pytest.approx([0.8 * each, 0.2 * each], rel=0.1)
    assert [sent[True, 0], sent[True, 1]] == pytest.approx([0.2 * each, 0.8 * each], rel=0.1)


def test_the_table_has_the_delays_of_each_phase() -> None:
    assert [begin_s for _, begin_s, _ in phases(RESULT)] == [6, 12, 24]
    rows = [line.split()[-2:] for line in table(RESULT).splitlines()[1:]]
    assert rows == [["200", "0"], ["0", "700"], ["0", "10"]]


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    assert draw(RESULT, tmp_path / "it.png").stat().st_size > 10_000
    times_s, rates = binned([(0.1, 0.0), (0.2, 0.0), (0.7, 0.0)], 1.2)
    assert times_s == [0.25, 0.75]
    assert rates == [4, 2]
