"""Table 1: long flows at one limiter, web requests at the other (paper, section 5.3).

The paper gives means over ten runs, and harmonic means of the requests' rates by object size. The
sizes of its objects are not known beyond that table (docs/testbed.md).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from testbed.harness.draw import first_runs
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, Run, difference, mean_and_spread, ratio, text
from testbed.harness.series import Series
from testbed.reproduce.baseline import FPS, NAMES, papers

_KBIT = 1e3
_PAPERS = ("ctb", "grd", "fps")
_NAMES = ("ctb", "grd", *FPS)
_ALIKE = 0.15
"""Tolerance for a quotient of two rates, from the paper's."""
_CLASSES = ("[0, 5000)", "[5000, 50000)", "[50000, 500000)", "[500000, ∞)")
_PAPER = {
    "Goodput, bulk": ("6900.90", "7257.87", "6989.76"),
    "(stddev), bulk": ("125.45", "75.87", "219.55"),
    "Goodput, web": ("1796.06", "1974.35", "2090.25"),
    "(stddev), web": ("104.32", "93.90", "57.98"),
    "Web rate, [0, 5000)": ("28.17", "25.84", "25.71"),
    "Web rate, [5000, 50000)": ("276.18", "342.96", "335.80"),
    "Web rate, [50000, 500000)": ("472.09", "612.08", "571.40"),
    "Web rate, [500000, ∞)": ("695.40", "751.98", "765.26"),
    "Fairness, bulk": ("0.971", "0.997", "0.962"),
}
"""The values of CTB, GRD and FPS, kbit/s."""

TABLE1 = Series(
    "table1",
    "table1",
    full={"allocators": [*_NAMES], "repeat": 6},
    quick={"seconds": 30, "repeat": 1},
)


def _bulk(run: Run) -> float:
    return float(run["bulk_goodput_bps"])


def _web(run: Run) -> float:
    return float(run["web"]["goodput_bps"])


def _mean(results: Results, allocator: str, of_run: Callable[[Run], float]) -> float | None:
    values = results.values(TABLE1.name, allocator, of_run)
    return statistics.fmean(values) if values else None


def class_rate(runs: Sequence[Run], number: int) -> float | None:
    """Harmonic mean of the rates of a class's finished requests in all runs, bits/s."""
    classes = [run["web"]["classes"][number] for run in runs]
    finished = sum(item["finished"] for item in classes)
    if not finished:
        return None
    return float(
        finished / sum(item["finished"] / item["rate_bps"] for item in classes if item["finished"])
    )


def same_requests(results: Results) -> float | None:
    """Part of the repetitions with the same requests for all allocators."""
    lists: dict[int, set[tuple[int, ...]]] = {}
    for allocator in _NAMES:
        for run in results.runs(TABLE1.name, allocator):
            sizes = tuple(request[2] for request in run["web"]["requests"])
            lists.setdefault(run["repetition"], set()).add(sizes)
    if not lists:
        return None
    return sum(len(found) == 1 for found in lists.values()) / len(lists)


def evaluate(results: Results) -> Finding:
    """Compare goodput, fairness and rates of requests with CTB's."""
    bulk = {name: _mean(results, name, _bulk) for name in _NAMES}
    web = {name: _mean(results, name, _web) for name in _NAMES}
    fairness = {name: _mean(results, name, lambda run: float(run["jain"])) for name in _NAMES}
    checks = [
        *(near(f"{NAMES[name]}: aggregate over the limit", results.used(TABLE1.name, name),
               1.0, 0.03) for name in FPS),
        Check("Repetitions in which all were asked for the same objects", same_requests(results),
              least=1.0),
        *(
            check
            for name in FPS
            for check in (
                Check(f"{NAMES[name]}: web goodput over CTB's", ratio(web[name], web["ctb"]),
                      least=1.0),
                Check(f"{NAMES[name]}: bulk goodput over CTB's", ratio(bulk[name], bulk["ctb"]),
                      least=0.98),
                Check(f"{NAMES[name]}: Jain's index of the bulk flows less CTB's",
                      difference(fairness[name], fairness["ctb"]), least=-0.01),
            )
        ),
        Check("GRD: Jain's index of the bulk flows less CTB's",
              difference(fairness["grd"], fairness["ctb"]), least=0.0),
        *(check for name in ("grd", *FPS) for check in _rate_checks(results, name)),
    ]  # fmt: skip
    ours = (
        "Mbit/s, bulk and web: "
        + ", ".join(
            f"{NAMES[name]} {text(_mbit(bulk[name]))} and {text(_mbit(web[name]))}"
            for name in _NAMES
        )
        + "; Jain's index: "
        + ", ".join(f"{NAMES[name]} {text(fairness[name], 3)}" for name in _NAMES)
    )
    small_grd = ratio(_kbit(results, "grd", 0), _kbit(results, "ctb", 0))
    return Finding(
        checks,
        ours,
        "The paper does not state the sizes of its objects. Ours have a Pareto distribution, and "
        f"CTB's smallest objects have {text(_kbit(results, 'ctb', 0), 0)} kbit/s, the paper's 28. "
        "So the rates are compared as quotients to CTB's. fair gives a new flow its share at once, "
        "so all but the largest objects arrive sooner than under the paper's FPS. GRD's smallest "
        f"objects have {text(small_grd)} of CTB's rate, the paper's 0.92, for an unknown reason.",
        [_table(results)],
    )


def _kbit(results: Results, allocator: str, number: int) -> float | None:
    """The rate of a class of requests, kbit/s."""
    rate = class_rate(results.runs(TABLE1.name, allocator), number)
    return None if rate is None else rate / _KBIT


def _rate_checks(results: Results, allocator: str) -> list[Check]:
    """Compare the rates of the four classes over CTB's with the paper's quotients.

    The paper's algorithms are to give its quotients, within the tolerance. `fair` is not in the
    paper: objects may arrive sooner with it than with the paper's FPS, but not later.
    """
    column = _PAPERS.index(papers(allocator))
    checks = []
    for number, label in enumerate(_CLASSES):
        row = _PAPER[f"Web rate, {label}"]
        ours = ratio(_kbit(results, allocator, number), _kbit(results, "ctb", number))
        theirs = float(row[column]) / float(row[0])
        statement = f"{NAMES[allocator]}: rate of objects of {label} bytes over CTB's"
        if allocator == "fair":
            statement += f" (the paper's FPS: {theirs:.2f})"
            checks.append(Check(statement, ours, least=theirs - _ALIKE))
        else:
            checks.append(near(f"{statement} (paper: {theirs:.2f})", ours, theirs, _ALIKE))
    return checks


def _mbit(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def _table(results: Results) -> Table:
    """The paper's rows: its values, then ours."""
    columns = []
    for name in _NAMES:
        runs = results.runs(TABLE1.name, name)
        rates = [_kbit(results, name, number) for number in range(len(_CLASSES))]
        fairness = results.values(TABLE1.name, name, lambda run: float(run["jain"]))
        columns.append(
            [
                *mean_and_spread([_bulk(run) for run in runs], _KBIT),
                *mean_and_spread([_web(run) for run in runs], _KBIT),
                *map(text, rates),
                text(statistics.fmean(fairness) if fairness else None, 3),
            ]
        )
    rows = [
        [label, *papers, *(column[row] for column in columns)]
        for row, (label, papers) in enumerate(_PAPER.items())
    ]
    header = ["Kbit/s", *(f"paper: {NAMES[name]}" for name in _PAPERS)]
    header += [f"ours: {NAMES[name]}" for name in _NAMES]
    return Table("Means over the runs; rates are harmonic means over all requests", header, rows)


FIGURE = Figure(
    "table1",
    "Table 1: long flows beside web requests",
    "Goodput of bulk and web traffic, Kbit/s: CTB 6,901 and 1,796, GRD 7,258 and 1,974, FPS 6,990 "
    "and 2,090; fairness of the bulk flows 0.971, 0.997 and 0.962",
    [TABLE1],
    evaluate,
    first_runs("table1", {NAMES[name]: (TABLE1.name, name) for name in _NAMES}),
)
