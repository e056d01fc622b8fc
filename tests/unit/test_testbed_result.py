"""The statistics of a run."""

from __future__ import annotations

import pytest

from testbed import result
from testbed.errors import MeasurementError
from tests.testbed_factories import STEP_S, flow_goodput

LIMIT_BPS = 10e6


def test_jain_of_equal_rates_is_one_and_of_a_monopoly_one_nth() -> None:
    assert result.jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert result.jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert result.jain([1.0, 3.0]) == pytest.approx(16 / 20)


def test_jain_of_nothing_is_no_figure() -> None:
    with pytest.raises(MeasurementError):
        result.jain([0.0, 0.0])


def test_a_counter_is_interpolated_between_samples() -> None:
    times, values = [0.0, 1.0, 3.0], [0, 10, 50]
    assert result.at(times, values, 1.0) == 10
    assert result.at(times, values, 2.0) == 30
    for outside in (-0.1, 3.1):
        with pytest.raises(MeasurementError):
            result.at(times, values, outside)


def test_rates_are_those_of_whole_windows_only() -> None:
    times = [index * 0.5 for index in range(8)]
    values = [index * 100 for index in range(8)]
    assert result.rates_bps(times, values, 0.0, 3.4, 1.0) == pytest.approx([1600.0] * 3)


def test_uneven_sampling_times_do_not_change_a_rate() -> None:
    times = [-0.01, 0.98, 2.05, 3.01]
    values = [round((time + 0.01) * 1e6) for time in times]
    assert result.rates_bps(times, values, 0.0, 3.0, 1.0) == pytest.approx([8e6] * 3)


def test_a_window_ten_per_cent_above_the_limit_is_within_it() -> None:
    rates = [0.0, 10e6, 11e6, 11.1e6]
    assert result.within_limit(rates, LIMIT_BPS) == 0.75
    assert result.within_limit([], LIMIT_BPS) is None


def test_shares_sum_to_one() -> None:
    assert result.shares({"a": 3.0, "b": 7.0}) == {"a": 0.3, "b": 0.7}
    with pytest.raises(MeasurementError):
        result.shares({"a": 0.0})


def test_goodput_counts_only_the_time_a_flow_lived() -> None:
    flow = flow_goodput([0, 0, 0, 0, 0, 100, 100, 100, 100, 100], start_s=1.0, syn_s=1.0)
    assert result.goodput_bps(flow, 0.0, 2.0, STEP_S) == pytest.approx(500 * 8)
    assert result.goodput_bps(flow, 1.6, 2.0, STEP_S) == pytest.approx(500 * 8)


def test_goodput_leaves_the_warm_up_out() -> None:
    flow = flow_goodput([900, 900, 900, 900, 900, 100, 100, 100, 100, 100])
    assert result.goodput_bps(flow, 1.0, 2.0, STEP_S) == pytest.approx(500 * 8)


def test_a_flow_that_ended_before_the_measured_time_has_no_goodput() -> None:
    flow = flow_goodput([100] * 10, end_s=0.8)
    assert result.goodput_bps(flow, 1.0, 2.0, STEP_S) == 0


@pytest.mark.parametrize("goodput", [1_100_000, 700_000])
def test_goodput_that_does_not_fit_what_was_forwarded_is_a_failure(goodput: float) -> None:
    result.check_goodput(965_000, 1_000_000, 0)
    with pytest.raises(MeasurementError, match="do not fit"):
        result.check_goodput(goodput, 1_000_000, 0)
