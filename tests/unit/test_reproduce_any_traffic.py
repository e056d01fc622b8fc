"""Any traffic: the measures on runs that were made up, and every case's checks from both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from testbed.experiment import Experiment
from testbed.experiment_tables import ALLOCATOR_NAMES, NS_PER_S
from testbed.harness.finding import Verdict
from testbed.harness.results import Results
from testbed.result import GOODPUT_SHARE
from testbed.run_bounds import refuse
from testbed.studies import any_traffic, any_traffic_cases
from testbed.studies.any_traffic_cases import ALL_CASES, ALLOCATORS, CASES, ON_TESTBED, Bound
from testbed.studies.any_traffic_measures import (
    AFTER_EVENTS,
    AGGREGATE,
    BYTES,
    JAIN,
    RESENT,
    SPLIT_ERROR,
    T80,
    WORST_FIFTH,
    WORST_SECOND,
    Seen,
    apart,
    in_use_after,
    least_share,
    mean_share,
    most_share,
    part,
    share_of,
)
from tests.reproduce_factories import Rate, a_result, a_run, constant, draws
from tests.testbed_factories import experiment

FLOWS = [
    {"name": "one", "limiter": "l1", "count": 1, "rtt": "40ms"},
    {"name": "two", "limiter": "l2", "count": 2, "rtt": "40ms"},
]
UDP = [{"name": "udp", "limiter": "l2", "rate": "1mbit"}]


LIMIT = constant(10)


def of(part_: float, total: Rate) -> Rate:
    return lambda time_s: part_ * total(time_s)


def a_seen(
    rates: Mapping[str, float],
    total: Rate = LIMIT,
    *,
    udp: float | None = None,
    events: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> Seen:
    """A run with these rates of its flows, Mbit/s of the IP layer, at a limit of 10 Mbit/s."""
    made: Experiment = experiment(
        flows=FLOWS, udp=[] if udp is None else UDP, seconds=20, warmup="0s"
    )
    share = {"l1": 0.3, "l2": 0.7}
    run = a_run(
        "fair",
        limiters={name: of(one, total) for name, one in share.items()},
        events=list(events),
        **changes,
    )  # fmt: skip
    run["share"] = share
    run["flows"] = [
        {
            "id": name, "limiter": "l1" if name.startswith("one") else "l2", "start_s": 0.0,
            "end_s": 20.0, "syn_s": 0.01, "goodput_bps": rate * 1e6 * GOODPUT_SHARE,
        }
        for name, rate in rates.items()
    ]  # fmt: skip
    if udp is not None:
        run["udp"] = [{"id": "udp.1", "limiter": "l2", "forwarded_bps": udp * 1e6}]
    return Seen(run, made)


THREE = {"one.1": 3.0, "two.1": 3.0, "two.2": 4.0}


def test_rates_are_held_against_max_min_shares() -> None:
    seen = a_seen(THREE, udp=0.5)
    # The UDP source deserves its 1 Mbit/s, and the three share the rest.
    assert seen.deserved == pytest.approx({"one.1": 3e6, "two.1": 3e6, "two.2": 3e6, "udp.1": 1e6})
    assert least_share().of(seen) == pytest.approx(1.0)
    assert most_share().of(seen) == pytest.approx(4 / 3)
    assert most_share("udp").of(seen) == pytest.approx(0.5)
    assert mean_share().of(seen) == pytest.approx(10 / 9)
    assert part("two").of(seen) == pytest.approx(0.7)
    assert apart("one", "two").of(seen) == pytest.approx(3.5 / 3)
    assert apart("two", "one").of(seen) == pytest.approx(3.5 / 3)
    assert share_of("l1").of(seen) == 0.3
    for measure in (least_share(), most_share("udp"), apart("one", "two")):
        assert measure.ideal is not None
        assert measure.ideal(seen) == pytest.approx(1.0)


def test_a_group_that_gets_nothing_is_infinitely_far_apart() -> None:
    assert apart("one", "two").of(a_seen({**THREE, "one.1": 0.0})) == math.inf


def test_fairness_and_use_follow_from_rates_and_weights() -> None:
    seen = a_seen(THREE)
    assert JAIN.of(seen) == pytest.approx(100 / (3 * 34))
    assert AGGREGATE.of(seen) == pytest.approx(1.0)
    assert AGGREGATE.ideal is not None
    assert AGGREGATE.ideal(seen) == pytest.approx(1.0)
    # A third of the limit is due at the first limiter.
    assert SPLIT_ERROR.of(seen) == pytest.approx(1 / 3 - 0.3)


def test_segments_sent_again_are_a_part_of_what_was_forwarded() -> None:
    seen = a_seen(THREE)
    for flow in seen.run["flows"]:
        flow["retransmits"] = 100
    # 10 Mbit/s for 20 s are 16,667 packets.
    assert RESENT.of(seen) == pytest.approx(300 / 16_667, rel=1e-3)


def pulse(mbit: float, begin_s: float, end_s: float) -> Rate:
    """A rate that is this one between two times, and half the limit otherwise."""
    return lambda time_s: mbit if begin_s - 1e-9 <= time_s < end_s - 1e-9 else 5.0


def test_the_worst_windows_are_found_wherever_they_begin() -> None:
    seen = a_seen(THREE, pulse(20, 7.35, 7.85))
    assert WORST_SECOND.of(seen) == pytest.approx((0.5 * 20 + 0.5 * 5) / 10)
    assert WORST_FIFTH.of(seen) == pytest.approx(2.0)


def test_bytes_above_the_limit_are_those_of_the_worst_interval() -> None:
    """10 Mbit/s more than the limit for half a second, over 3 x 75 kB and two packets."""
    seen = a_seen(THREE, pulse(20, 7.35, 7.85))
    assert BYTES.of(seen) == pytest.approx(0.5 * 10e6 / 8 / (3 * 75_000 + 2 * 1500))
    # Two pulses with a pause that pays one back count once; without one they add up.
    apart_ = a_seen(THREE, lambda t: max(pulse(20, 5, 5.5)(t), pulse(20, 8, 8.5)(t)))
    assert BYTES.of(apart_) == pytest.approx(BYTES.of(seen))
    close = a_seen(THREE, lambda t: max(pulse(20, 5, 5.5)(t), pulse(20, 5.5, 6)(t)))
    assert BYTES.of(close) == pytest.approx(2 * BYTES.of(seen))


def test_in_use_from_the_first_second_that_has_enough() -> None:
    steep = a_seen(THREE, lambda time_s: 10.0 if time_s >= 6.5 - 1e-9 else 1.0)
    assert in_use_after(5.0).of(steep) == pytest.approx(1.5 - 2 / 9, abs=0.05)
    assert in_use_after(5.0).of(a_seen(THREE, constant(7.9))) == math.inf


EVENT = {"kind": "join", "at_s": 5.0, "until_s": 9.0, "limit_bps": 10e6, "in_force_s": None}


def test_t80_is_the_median_of_all_flows_of_all_events() -> None:
    def events(*times: float | None, **changes: Any) -> list[dict[str, Any]]:
        return [{**EVENT, "flows": [{"t80_s": time}], **changes} for time in times]

    assert T80.of(a_seen(THREE, events=events(0.2, 0.4, None))) == 0.4
    assert T80.of(a_seen(THREE, events=events(0.2, None, None))) == math.inf
    death = events(1.4, kind="death", in_force_s=1.0)
    assert T80.of(a_seen(THREE, events=death)) == pytest.approx(0.4)
    assert math.isnan(T80.of(a_seen(THREE)))


def test_the_first_second_after_an_event_counts() -> None:
    event = {**EVENT, "flows": [], "first_1s_bps": 12e6, "highest_1s_bps": 11e6}
    assert AFTER_EVENTS.of(a_seen(THREE, events=[event])) == pytest.approx(1.2)
    later = {**event, "first_1s_bps": None, "limit_bps": 5e6}
    assert AFTER_EVENTS.of(a_seen(THREE, events=[event, later])) == pytest.approx(2.2)
    assert math.isnan(AFTER_EVENTS.of(a_seen(THREE)))


# The figure.


def test_all_that_is_registered_of_the_allocators_runs_in_every_case() -> None:
    for case in CASES:
        for quick in (False, True):
            table = case.series.load(quick).table
            assert set(table.allocators) <= {*ALLOCATORS} & {*ALLOCATOR_NAMES}
            assert table.repeat == (1 if quick and case.series.quick is not None else table.repeat)
        assert table.gossip.fabric == "tree"
    assert len({case.series.name for case in CASES}) == len(CASES)
    assert sum(case.series.load(False).table.repeat < 5 for case in CASES) == 1


def test_a_case_is_the_same_experiment_on_the_testbed() -> None:
    assert {case.key for case in CASES} >= {*ON_TESTBED} == {*any_traffic_cases._CARRIED}
    for case in CASES:
        if (real := ON_TESTBED.get(case.key)) is None:
            continue
        assert (real.series.simulated, real.series.settings) == (False, case.series.settings)
        assert real.bounds == case.bounds
        for quick in (False, True):
            made = real.series.load(quick)
            refuse(made)
            assert made.table.repeat <= 3
            assert made.table.udp == case.series.load(False).table.udp
    assert len({case.series.name for case in ALL_CASES}) == len(CASES) + len(ON_TESTBED)
    assert {case.series.name for case in ALL_CASES} == {
        series.name for series in any_traffic.FIGURE.all_series
    }


def test_every_bound_is_of_a_group_that_is_there() -> None:
    """Each measure of each case, on a run of the case in which each flow has what it deserves."""
    for case in CASES:
        if "10000" in case.key:
            continue  # as the smaller one of its kind
        for bound in case.bounds:
            if bound.measure.ideal is not None:
                assert bound.measure.ideal(ideal(case.series.load(False))) > 0


def ideal(made: Experiment) -> Seen:
    rng = Random(1)
    run: dict[str, Any] = {
        "warmup_s": made.table.warmup / NS_PER_S,
        "seconds": made.table.seconds,
        "flows": [
            {"id": flow.id, "limiter": flow.limiter, "goodput_bps": 0.0,
             "start_s": flow.start_ns / NS_PER_S, "end_s": flow.end_ns / NS_PER_S,
             "syn_s": flow.start_ns / NS_PER_S}
            for group in made.groups for flow in made.flows(group, rng)
        ],
        "udp": [
            {"id": source.id, "forwarded_bps": 0.0}
            for group in made.udp for source in group.sources(made.duration_ns, rng)
        ],
    }  # fmt: skip
    return Seen(run, made)


def results(monkeypatch: pytest.MonkeyPatch, udp_mbit: float, tcp_mbit: float) -> Results:
    """Three runs of UDP of 3 Mbit/s beside the seven, judged as if FPS were to reach it."""
    monkeypatch.setattr(any_traffic, "JUDGED", "fps")
    (case,) = [case for case in CASES if case.key == "udp-3"]
    made = case.series.load(False)
    seen = ideal(made)
    runs = []
    for allocator in ("ctb", "fps"):
        for repetition in (1, 2, 3):
            run = a_run(allocator, repetition, limiters={"l1": constant(3), "l2": constant(7)})
            run["flows"] = [
                {**flow, "goodput_bps": tcp_mbit * 1e6 * GOODPUT_SHARE}
                for flow in seen.run["flows"]
            ]
            run["udp"] = [{**seen.run["udp"][0], "forwarded_bps": udp_mbit * 1e6}]
            runs.append({**run, "warmup_s": 10.0, "seconds": 40.0})
    return Results({case.series.name: a_result(*runs, definition=made.definition)})


def verdicts(found: Results) -> list[Verdict]:
    return [check.verdict for check in any_traffic.FIGURE.evaluate(found).checks]


def test_a_case_is_judged_from_both_sides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    passed, broken = Verdict.PASSED, Verdict.FAILED
    assert verdicts(results(monkeypatch, 0.99, 0.83)) == [passed, passed]
    assert verdicts(results(monkeypatch, 0.99, 0.81)) == [broken, passed]
    assert verdicts(results(monkeypatch, 1.01, 0.83)) == [passed, broken]
    found = any_traffic.FIGURE.evaluate(results(monkeypatch, 0.99, 0.83))
    measured, rates = found.tables
    assert measured.header == ["case", "measured", "to reach", "max-min", "CTB", "FPS"]
    assert measured.rows[0][2:] == ["at least 0.9", "1.00", "0.91 (0.91)", "0.91 (0.91)"]
    assert rates.rows[2][1:] == ["udp (1)", "0.909", "0.990", "0.990"]
    draws(any_traffic.FIGURE, results(monkeypatch, 0.99, 0.83), tmp_path)


def test_a_bound_may_compare_allocators_or_take_the_worst_run() -> None:
    (case,) = [case for case in CASES if case.key == "ports"]

    def check(bound: Bound, fair: Sequence[float], ctb: Sequence[float]) -> float | None:
        runs = any_traffic._Runs(Results({}), replace(case, bounds=[bound]))
        seen = {number: a_seen(THREE) for number in {*fair, *ctb}}
        number_of = {id(one): number for number, one in seen.items()}
        runs.by_allocator["fair"] = [seen[number] for number in fair]
        runs.by_allocator["ctb"] = [seen[number] for number in ctb]
        measure = replace(bound.measure, of=lambda one: number_of[id(one)])
        return any_traffic._check(runs, replace(bound, measure=measure)).value

    assert check(Bound(BYTES, most=1.0), [1, 3, 2], []) == 2
    assert check(Bound(BYTES, most=1.0, worst=True), [1, 3, 2], []) == 3
    assert check(Bound(BYTES, least=1.0, worst=True), [1, 3, 2], []) == 1
    assert check(Bound(BYTES, least=1.0, most=2.0, worst=True), [0.5, 1, 3], []) == 3
    assert check(Bound(BYTES, least=0.0, beside="ctb"), [1, 3, 2], [5, 6, 7]) == -4
    assert check(Bound(BYTES, least=0.0, beside="ctb"), [1, 3, 2], []) is None


def test_without_runs_nothing_is_measured() -> None:
    found = any_traffic.FIGURE.evaluate(Results({}))
    assert {check.verdict for check in found.checks} == {Verdict.MISSING}
    assert len(found.checks) > len(CASES)
    assert any_traffic.FIGURE.draw(Results({}), Path()) == []
    assert any_traffic_cases.JUDGED in ALLOCATORS
