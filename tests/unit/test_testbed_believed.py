"""How wrong limiters are about the total of what they share."""

from __future__ import annotations

import pytest

from testbed.believed import error_of, from_ticks


def test_the_error_is_the_root_mean_square_over_the_limiters() -> None:
    # Of a total of 10 one believes 12, the other 9.
    assert error_of([(4.0, 8.0), (6.0, 3.0)]) == pytest.approx(((0.2**2 + 0.1**2) / 2) ** 0.5)
    assert error_of([(4.0, 6.0), (6.0, 4.0)]) == 0.0


def test_a_limiter_alone_has_no_error() -> None:
    assert error_of([(4.0, 0.0)]) is None
    assert error_of([(0.0, 0.0), (0.0, 1.0)]) is None


def test_over_a_run_each_limiters_last_tick_counts() -> None:
    ticks = {
        "l1": [(-0.1, 4.0, 6.0), (0.4, 4.0, 8.0), (1.6, 4.0, 6.0)],
        "l2": [(0.5, 6.0, 4.0)],
    }
    believed = from_ticks(ticks, 2.0)
    assert believed is not None
    # At first only one is known, which is no fleet.
    assert believed.times_s == [1.0, 2.0]
    assert believed.errors == [pytest.approx((0.2**2 / 2) ** 0.5), 0.0]


def test_a_run_without_a_fleet_has_no_error() -> None:
    assert from_ticks({"ctb": [(0.0, 4.0, 0.0)]}, 2.0) is None
    assert from_ticks({}, 2.0) is None
