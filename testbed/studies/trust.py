"""The simulator's accuracy: the same experiments in it and on the testbed (not in the paper).

The experiments are the baseline, a flow that joins an idle limiter, figure 7, and other kinds of
traffic (UDP, mixed round trips, CUBIC and BBR). Definitions and seeds are the same, and medians
over the runs are compared. Figure 7 is compared in each of its three phases, from 5 s after a
change.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from testbed.harness.draw import first_runs
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import OfRun, Results, Run, goodput, text, totals
from testbed.harness.series import Series
from testbed.reproduce.baseline import BASELINE, NAMES
from testbed.reproduce.fig7 import BOTTLENECK
from testbed.studies.any_traffic_cases import ON_TESTBED

_PACE = 0.06
_AGREEMENT = 0.03
"""Tolerance for aggregates (over the limit), shares, and Jain's index."""
_SIMULATED = 10
"""Runs in the simulator: results of a bucket with flows of several limiters vary by chance."""
_OF_PHASES = 30
"""The same for short phases: in CTB's first ten seconds the share of 3 flows varies by 0.03."""
_SETTLING_S = 5.0
_AGGREGATE, _SHARE, _JAIN = "aggregate over the limit", "share of the first limiter", "Jain's index"
_PART = "part of the limit that the odd flows have"
_MEASURES = (_AGGREGATE, _SHARE, _JAIN, _PART)

JOIN = Series(
    "join",
    "join",
    full={"allocators": ["ctb", "fps", "fair"], "repeat": 5},
    quick={"seconds": 34, "repeat": 1},
)


class _Pair(NamedTuple):
    """An experiment on the testbed and in the simulator."""

    title: str
    testbed: Series
    simulated: Series
    phases_s: Sequence[tuple[float | None, float | None]] = ((None, None),)
    """The compared phases of a run; None is the beginning or the end of the measured time."""
    judged: Sequence[str] = (_AGGREGATE, _SHARE, _JAIN)
    """The compared measures: not every measure is meaningful for every experiment."""
    odd: str | None = None
    """The beginning of the names of groups that are unlike the others."""


def _pair(title: str, testbed: Series, name: str | None = None, **more: Any) -> _Pair:
    """`name` is the simulated series' name, if it is not that on the testbed."""
    pair = _Pair(title, testbed, testbed, **more)
    simulated = replace(
        testbed,
        name=f"trust-sim/{name or testbed.name}",
        full={
            **testbed.full,
            "repeat": _SIMULATED if len(pair.phases_s) == 1 else _OF_PHASES,
        },
        simulated=True,
        pace=_PACE,
    )
    return pair._replace(simulated=simulated)


def _any_traffic(title: str, key: str, judged: Sequence[str], odd: str | None = None) -> _Pair:
    """A case of `any-traffic` on the testbed and in the simulator."""
    return _pair(title, ON_TESTBED[key].series, key, judged=judged, odd=odd)


_DRAWN = (
    _pair("baseline", BASELINE),
    _pair("a flow joins", JOIN),
    _pair(
        "figure 7",
        BOTTLENECK,
        phases_s=[(None, 15.0), (15.0 + _SETTLING_S, 31.0), (31.0 + _SETTLING_S, None)],
    ),
)
PAIRS = (
    *_DRAWN,
    _any_traffic("UDP of 3 Mbit/s beside TCP", "udp-3", _MEASURES, "udp"),
    _any_traffic("UDP of 20 Mbit/s beside TCP", "udp-20", _MEASURES, "udp"),
    _any_traffic("mixed round trips", "rtt", _MEASURES, "fast"),
    _any_traffic("BBR beside New Reno and CUBIC", "bbr", _MEASURES, "bbr"),
    _any_traffic("a lone CUBIC flow, no path delay, burst 40 ms", "lone-cubic-40ms", [_AGGREGATE]),
    _any_traffic("the same, burst 200 ms", "lone-cubic-200ms", [_AGGREGATE]),
    _any_traffic("the same, burst auto", "lone-cubic-auto", [_AGGREGATE]),
)


def aggregate(run: Run, limit_bps: float, begin_s: float | None, end_s: float | None) -> float:
    """The aggregate over the limit in a phase of a run."""
    return statistics.fmean(totals(run, 0.2, begin_s, end_s)) / limit_bps


def share(run: Run, limiter: str, begin_s: float | None, end_s: float | None) -> float:
    """A limiter's part of the goodput in a phase of a run; for a central one, that of its flows."""
    begin_s = run["warmup_s"] if begin_s is None else begin_s
    end_s = run["seconds"] if end_s is None else end_s
    by_limiter: dict[str, float] = {limiter: 0.0}
    for flow in (*run["flows"], *run.get("udp", ())):
        rate = goodput(flow, run["flow_step_s"], begin_s, end_s)
        by_limiter[flow["limiter"]] = by_limiter.get(flow["limiter"], 0.0) + rate
    return by_limiter[limiter] / sum(by_limiter.values())


def odd_part(run: Run, limit_bps: float, odd: str) -> float:
    """The goodput of the odd groups over the limit."""
    flows = (*run["flows"], *run.get("udp", ()))
    rates = [float(flow["goodput_bps"]) for flow in flows if flow["id"].startswith(odd)]
    return sum(rates) / limit_bps


_Values = list[tuple[float | None, float | None]]
"""(testbed, simulator) for each phase, or for the whole run."""


def _compare(results: Results, pair: _Pair, allocator: str) -> dict[str, _Values]:
    """The compared values of an allocator, by measure."""
    first = (results.by_series.get(pair.testbed.name, {}).get("limiters") or ["l1"])[0]
    limit_bps = results.limit_bps(pair.testbed.name)

    def both(of_run: OfRun) -> tuple[float | None, float | None]:
        here, there = (
            results.median(series.name, allocator, of_run)
            for series in (pair.testbed, pair.simulated)
        )
        return here, there

    def in_phase(phase: tuple[float | None, float | None]) -> OfRun:
        return lambda run: aggregate(run, limit_bps, *phase)

    def share_in_phase(phase: tuple[float | None, float | None]) -> OfRun:
        return lambda run: share(run, first, *phase)

    odd = pair.odd
    return {
        _AGGREGATE: [both(in_phase(phase)) for phase in pair.phases_s],
        _SHARE: [both(share_in_phase(phase)) for phase in pair.phases_s],
        _JAIN: [both(lambda run: float(run["jain"]))],
        _PART: [(None, None) if odd is None else both(lambda run: odd_part(run, limit_bps, odd))],
    }


def _largest(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    """The largest known difference."""
    known = [abs(here - there) for here, there in pairs if here is not None and there is not None]
    return max(known, default=None)


def evaluate(results: Results) -> Finding:
    """Compare the testbed and the simulator."""
    checks, rows, said = [], [], []
    for pair in PAIRS:
        names = results.wanted(pair.testbed.name, pair.testbed.full["allocators"])
        compared = {name: _compare(results, pair, name) for name in names}
        rows += [
            [
                f"{pair.title}: {NAMES[name]}",
                *(
                    ", ".join(text(values[side], 3) for values in one[measure])
                    for measure in _MEASURES
                    for side in (0, 1)
                ),
            ]
            for name, one in compared.items()
        ]
        far = [
            _largest(values for one in compared.values() for values in one[measure])
            for measure in pair.judged
        ]
        checks += [
            Check(f"{pair.title}: {what}, largest difference over the allocators", value,
                  most=_AGREEMENT)
            for what, value in zip(pair.judged, far, strict=True)
        ]  # fmt: skip
        said.append(f"{pair.title} {', '.join(text(value, 3) for value in far)}")
    header = ["", "aggregate, testbed", "simulator", "share, testbed", "simulator",
              "Jain, testbed", "simulator", "odd flows, testbed", "simulator"]  # fmt: skip
    title = "Medians over the runs; for figure 7 before 15 s, from 20 to 31 s, and from 36 s"
    return Finding(
        checks,
        "largest differences of aggregate, share and Jain's index, and of the parts of UDP, BBR "
        f"and the flow of 10 ms: {'; '.join(said)}",
        "The cells of section 5.1 with intervals of 10 ms and no filter do not agree (see there). "
        "Fleets have figures of their own. Web requests, and GRD with intervals of 500 ms, are "
        "not compared.",
        tables=[Table(title, header, rows)],
    )


_PANELS = {
    f"{pair.title}: FPS, {where}": (series.name, "fps")
    for pair in _DRAWN
    for where, series in (("testbed", pair.testbed), ("simulator", pair.simulated))
}

FIGURE = Figure(
    "trust",
    "The simulator beside the testbed",
    "Not in the paper. To reach, for the baseline, a flow that joins, figure 7 and traffic of "
    "other kinds: aggregates within 3 %, splits and parts within 3 points, Jain's index within "
    "0.03",
    [series for pair in PAIRS for series in (pair.testbed, pair.simulated)],
    evaluate,
    first_runs("trust", _PANELS),
)
