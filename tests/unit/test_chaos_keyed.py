"""Faults done to limits for each user: how the clients' log is judged."""

from __future__ import annotations

import pytest

from testbed.chaos.keyed import CAPACITY, FAULTS, RATE_S, REPEAT_S, Log, news_s


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
