"""`python -m testbed.messages hold`: what it makes of delays."""

from __future__ import annotations

import pytest

from testbed.errors import MeasurementError
from testbed.messages.hold import HEADER, Delays, Round, rows

MS = 1_000_000


def test_a_percentile_is_of_the_messages_that_were_due_in_its_phase() -> None:
    delays = Delays()
    for number in range(1000):
        due_ns = number * 2 * MS
        delays.add(due_ns, due_ns + (50 if number >= 500 else number % 100) * MS)
    assert delays.p99_s(0, 1000 * MS) == pytest.approx(0.099)
    assert delays.p99_s(1000 * MS, 2000 * MS) == pytest.approx(0.05)


def test_a_phase_that_most_messages_are_missing_of_is_none() -> None:
    delays = Delays()
    for number in range(200):
        delays.add(number * MS, number * MS)
    with pytest.raises(MeasurementError, match="200 messages of the other topic came"):
        delays.p99_s(0, 1000 * MS)


@pytest.mark.parametrize(("full_s", "verdict"), [(0.012, "1.20 ok"), (0.0121, "1.21 SHORT OF")])
def test_the_median_of_the_ratios_is_held_against_the_goal(full_s: float, verdict: str) -> None:
    rounds = [Round(0.01, it, 1000, 40_000.0, 100.0) for it in (0.001, full_s, 0.5)]
    found = rows(rounds)
    assert [len(row) for row in found] == [len(HEADER)] * 4
    assert found[-1][3].startswith(verdict)
