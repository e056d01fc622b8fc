"""Faults done to limits for each user: how the clients' log is judged."""

from __future__ import annotations

import pytest

from testbed.chaos.keyed import excess
from testbed.chaos.keyed_faults import FAULTS, REPEAT_S, news_s
from testbed.chaos.keyed_fleet import CAPACITY, RATE_S, Log
from testbed.harness.finding import Verdict


def test_a_log_is_judged_by_one_exact_bucket() -> None:
    at_once = Log(admitted=[(100.0, number % 3) for number in range(CAPACITY + 10)])
    assert at_once.excess() == 10
    assert at_once.excess(since_s=101) == 0
    even = Log(admitted=[(100 + number / RATE_S, 0) for number in range(500)])
    assert even.excess() == 0
    later = Log(admitted=[*at_once.admitted, (102.0, 1)])
    assert later.excess(since_s=101) == pytest.approx(10 - 2 * RATE_S + 1)


def test_a_fault_makes_news_late_by_repeats() -> None:
    assert news_s(FAULTS["none"], 0.1) == pytest.approx(0.11)
    # Five losses in a row at 20 % are rarer than one in a thousand; at 40 % eight are.
    assert news_s(FAULTS["loss-20"], 0.0) == pytest.approx(0.01 + 5 * REPEAT_S)
    assert news_s(FAULTS["loss-40"], 0.0) == pytest.approx(0.01 + 8 * REPEAT_S)


@pytest.mark.parametrize(
    ("name", "more", "holds"),
    [
        ("none", 1, True),
        ("none", 3, False),
        ("clocks", 3, False),
        ("forge", 3, False),
        # Five seconds of the rate may have waited for a daemon that stood still.
        ("freeze", 25, True),
        ("freeze", 28, False),
        # The side that is cut off has a bucket of its own.
        ("partition", CAPACITY + 25, True),
        ("partition", CAPACITY + 28, False),
        ("kill", 20, True),
        ("kill", 24, False),
    ],
)
def test_a_fault_has_a_bound_on_its_excess(name: str, more: int, holds: bool) -> None:
    log = Log(admitted=[(107.0, 0)] * (CAPACITY + more))
    during, later = excess(FAULTS[name], log, 100.0, 105.0, 108.0)
    assert (during.verdict is Verdict.PASSED) == holds
    assert later.verdict is Verdict.PASSED


def test_excess_must_be_paid_back() -> None:
    """After a partition, what was admitted too much may not be more than it was."""
    log = Log(admitted=[(104.0, 0)] * (2 * CAPACITY))
    assert excess(FAULTS["partition"], log, 100.0, 105.0, 108.0)[1].verdict is Verdict.PASSED
    log.admitted += [(109.0, 1)] * CAPACITY
    during, later = excess(FAULTS["partition"], log, 100.0, 105.0, 108.0)
    assert during.verdict is Verdict.FAILED
    assert later.verdict is Verdict.FAILED
