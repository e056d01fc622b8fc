"""The chaos suite's measures of bytes over time: overshoot, recovery, use, a host that stops."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from testbed.chaos.meter import Counters, timed
from testbed.chaos.series import SAMPLE_S, Seen, depths, lowest, recovery_s
from testbed.chaos.urgency import NICE


def series(**rates: list[tuple[float, float]]) -> Seen:
    """Each limiter forwards at some rates for some seconds, one after another."""
    found = Seen()
    steps = {
        name: [rate / 50 for seconds, rate in spans for _ in range(round(seconds * 50))]
        for name, spans in rates.items()
    }
    total = dict.fromkeys(rates, 0.0)
    for index in range(min(map(len, steps.values()))):
        found.add(index / 50, {name: round(value) for name, value in total.items()})
        total = {name: value + steps[name][index] for name, value in total.items()}
    return found


@pytest.mark.parametrize(
    ("rates", "span", "window_s", "bytes_beyond"),
    [
        pytest.param([(5, 1000)], (0, 5), 1.0, 0, id="at the rate"),
        # A burst is the overshoot whatever window it is in; one that lasts counts for one window.
        pytest.param([(2, 1000), (0.3, 3000), (2, 1000)], (0, 5), 1.0, 600, id="a burst"),
        pytest.param([(1, 1000), (5, 1500), (1, 1000)], (0, 9), 1.0, 500, id="one window"),
        pytest.param([(1, 1000), (5, 1500), (1, 1000)], (0, 9), 99.0, 2500, id="all of it"),
        pytest.param([(3, 0), (1, 1500), (1, 0)], (0, 5), 99.0, 500, id="idle time is no credit"),
        pytest.param([(1, 9000), (3, 1000)], (1.5, 4), 1.0, 0, id="before the span"),
        pytest.param([(1, 9000), (3, 1000)], (7, 8), 1.0, 0, id="after the samples"),
    ],
)
def test_the_overshoot_is_that_of_the_worst_window(
    rates: list[tuple[float, float]],
    span: tuple[float, float],
    window_s: float,
    bytes_beyond: float,
) -> None:
    found = series(a=rates).all.overshoot(span, 1000, window_s)
    assert found == pytest.approx(bytes_beyond, abs=1 if bytes_beyond else 1e-6)


EVENLY = {"a": [(2, 500), (6, 500)], "b": [(4, 0), (4, 500)]}
UNEVENLY = {"a": [(2, 900), (3, 500)], "b": [(2, 100), (3, 500)]}
GAP = {"a": [(3, 1000), (0.5, 0), (4, 1000)]}


@pytest.mark.parametrize(
    ("rates", "healed_s", "lasts_s", "after_s"),
    [
        # The start of the first full and even second: from 3.8 s on b has 400 in one, 0.9 of all.
        (EVENLY, 1.0, 0.0, 2.8),
        (EVENLY, 5.0, 0.0, 0),
        # Full for a moment is not enough: that second has no more than 0.1 s of the gap.
        (GAP, 0.0, 0.0, 3.4),
        (GAP, 0.0, 2.9, 3.4),
        (GAP, 0.0, 3.2, None),
        ({"a": [(3, 1000), (0.5, 0)]}, 0.0, 0.0, None),
        (UNEVENLY, 0.0, 0.0, 1.4),
        ({"a": [(5, 800)]}, 0.0, 0.0, None),
    ],
)
def test_a_fleet_has_recovered_when_its_use_stays(
    rates: dict[str, list[tuple[float, float]]],
    healed_s: float,
    lasts_s: float,
    after_s: float | None,
) -> None:
    found = recovery_s(series(**rates), healed_s, 1000, lasts_s)
    assert found == (pytest.approx(after_s, abs=0.11) if after_s else after_s)


def test_the_series_show_what_passed_in_each_step() -> None:
    seen = series(a=[(2, 1000), (2, 500)], b=[(4, 100)])
    assert seen.all.steps(1.0, 3.0, 0.5) == {"a": [500, 500, 250, 250], "b": [50] * 4}


def test_the_lowest_second_is_found() -> None:
    seen = series(a=[(2, 1000), (0.5, 0), (2, 1000)])
    assert lowest(seen, 0.0, 4.4) == pytest.approx(500, rel=0.01)
    assert math.isnan(lowest(seen, 0.0, 0.5))


def test_canaries_are_no_use_of_the_limit_and_may_be_overshoot() -> None:
    seen = Seen(canary=100)
    for index in range(200):
        seen.add(index / 50, {"a": 12 * index, "b": 11 * index})
    assert lowest(seen, 0.0, 3.0) == pytest.approx(950)
    assert recovery_s(seen, 0.0, 1000) == 0
    assert recovery_s(seen, 0.0, 1060) is None
    assert seen.all.overshoot((0, 3), 1000, 1.0) == pytest.approx(150)


def stopping(*stops: float, rate: float = 1000, passing: float = 0) -> Seen:
    """Ten seconds, in which the sampler stands still for so long after each second; `passing` is
    the rate meanwhile."""
    found = Seen()
    time_s, value = 0.0, 0.0
    for number in range(round(10 / SAMPLE_S)):
        found.add(time_s, {"a": round(value)})
        value += rate * SAMPLE_S
        second, part = divmod(number + 1, round(1 / SAMPLE_S))
        time_s += SAMPLE_S
        if not part and second <= len(stops):
            time_s += stops[second - 1]
            value += passing * stops[second - 1]
    return found


def one_late_processor() -> Seen:
    """Ten seconds, in which one processor stands still at 3 s and is a little late at 5 s."""
    found = Seen()
    for number in range(500):
        found.add(number * SAMPLE_S, {"a": number}, {150: 0.12, 250: SAMPLE_S}.get(number, 0.001))
    return found


@pytest.mark.parametrize(
    ("seen", "span", "late_s"),
    [
        (Seen(), (0.0, 4.0), 0),
        (stopping(), (0.0, 10.0), 0),
        # What counts is from one sample to the next; the stops are more than a second apart.
        (stopping(0.0, 0.18, 0.08), (0.0, 9.0), 0.2),
        (stopping(0.0, 0.18, 0.08), (3.3, 9.0), 0.1),
        (stopping(0.0, 0.18, 0.08), (4.5, 9.0), 0),
        (stopping(0.0, 0.18, 0.08), (0.0, 1.9), 0),
        (one_late_processor(), (0.0, 9.0), 0.12),
        # In the second before the time, too: what it held up may come after it.
        (one_late_processor(), (3.9, 9.0), 0.12),
        (one_late_processor(), (4.1, 9.0), 0),
        (one_late_processor(), (0.0, 2.9), 0),
    ],
)
def test_the_series_show_how_long_the_host_stood_still(
    seen: Seen, span: tuple[float, float], late_s: float
) -> None:
    assert seen.late_s(*span) == pytest.approx(late_s)


@pytest.mark.parametrize("seen", [stopping(), one_late_processor()])
def test_a_host_whose_samples_come_in_time_is_always_awake(seen: Seen) -> None:
    assert seen.awake.times == pytest.approx(seen.all.times)
    assert seen.awake.forwarded == seen.all.forwarded


def test_the_clock_of_the_awake_host_leaves_out_late_samples() -> None:
    assert stopping(0.0, 0.18, 0.08).awake_at(9.0) == pytest.approx(9.0 - 0.3)


@pytest.mark.parametrize("passing", [0, 500, 2000])
@pytest.mark.parametrize("rate", [1000, 850])
def test_a_late_sample_counts_as_neither_time_nor_use(rate: float, passing: float) -> None:
    seen = stopping(0.0, 0.22, 0.32, 0.22, rate=rate, passing=passing)
    assert lowest(seen, 0.0, 9.0) == pytest.approx(rate, rel=0.002)
    assert recovery_s(seen, 0.0, 1000) == (0 if rate == 1000 else None)


def test_an_interface_that_is_made_again_counts_on() -> None:
    counters = Counters({"l1": "a", "l2": "b"})
    assert counters.take({("a", "rx"): 10, ("b", "rx"): 5}) == {"l1": 10, "l2": 5}
    assert counters.take({("b", "rx"): 6}) == {"l1": 10, "l2": 6}
    assert counters.take({("a", "rx"): 3, ("b", "rx"): 6}) == {"l1": 13, "l2": 6}
    assert counters.take({("a", "rx"): 4, ("b", "rx"): 7}) == {"l1": 14, "l2": 7}


def test_a_reading_in_the_middle_of_which_the_host_stopped_is_taken_again() -> None:
    times = iter([1.0, 1.2, 1.2, 1.201])
    texts = iter(["old", "new"])
    time_s, text = timed(lambda: next(texts), lambda: next(times))
    assert text == "new"
    assert time_s == pytest.approx(1.2005)


def test_a_host_that_always_stops_has_the_last_reading_taken() -> None:
    clock = itertools.count(0.0)
    assert timed(lambda: "text", lambda: next(clock)) == (8.5, "text")


def test_daemons_are_as_urgent_as_the_unit_has_them() -> None:
    unit = (Path(__file__).parents[2] / "scripts/drld.service").read_text()
    assert f"\nNice={NICE}\n" in unit


def test_each_limiter_of_a_fleet_has_at_least_the_least_depth() -> None:
    assert depths(2, 50_000) == 100_000
    assert depths(8, 1_500) == 8 * 18_000
