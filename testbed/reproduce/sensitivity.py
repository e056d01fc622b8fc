"""Section 5.1, the text: sensitivity to the estimate interval and to the EWMA, with equal flows.

The paper omits the details. Here the simulator runs the baseline with intervals from 10 to 500 ms
and 1-second EWMA parameters from 0 (no filter) to 0.75. The results are heat maps. Some of these
cells also run on the testbed. The paper's statement about the smallest interval without a filter is
checked on the testbed: the simulator does not model what happens below 10 ms (batches of
acknowledgements, the host's scheduler), and is wrong there about GTB and GRD.

`use` is the mean over 1 s windows of the aggregate over the limit, each window counting as 1 at
most: excess in one second does not compensate a lack in another.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from matplotlib import pyplot as plt
from matplotlib import rc_context
from matplotlib.axes import Axes

from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, Run, difference, text, texts, totals
from testbed.harness.series import Series
from testbed.plot import STYLE, save
from testbed.reproduce.baseline import FPS, NAMES

_INTERVALS_MS = (10, 20, 50, 100, 200, 500)
_EWMAS = (0, 0.1, 0.25, 0.5, 0.75)
_ALLOCATORS = ("gtb", "grd", *FPS)
_USUAL_EWMA = 0.1
_WINDOW = "128KiB"
"""The window of the paper's Linux 2.6.9. It bounds a flow while GRD drops nothing."""
_PACE = 0.06
_QUICK = {"seconds": 20, "warmup": "8s", "repeat": 1}
_QUICK_INTERVALS_MS, _QUICK_EWMAS = (10, 50, 500), (0, 0.1, 0.75)
_LONG_RTT_MS = 200
_FAIR, _FAIR_GTB = 0.95, 0.9


def _cell(interval_ms: int, ewma: float) -> Series:
    return Series(
        f"sensitivity/{interval_ms}ms-{ewma:g}",
        "baseline",
        full={"allocators": [*_ALLOCATORS], "repeat": 3, "window": _WINDOW},
        quick=_QUICK if interval_ms in _QUICK_INTERVALS_MS and ewma in _QUICK_EWMAS else None,
        settings=(f"gossip.interval={interval_ms}ms", f"limit.ewma={ewma:g}"),
        simulated=True,
        pace=_PACE,
    )


def _spot(interval_ms: int, ewma: float, allocators: list[str]) -> Series:
    return Series(
        f"sensitivity-testbed/{interval_ms}ms-{ewma:g}",
        "baseline",
        full={"allocators": allocators, "repeat": 2, "window": _WINDOW},
        quick=_QUICK,
        settings=(f"gossip.interval={interval_ms}ms", f"limit.ewma={ewma:g}"),
    )


GRID = {
    (interval_ms, ewma): _cell(interval_ms, ewma)
    for interval_ms in _INTERVALS_MS
    for ewma in _EWMAS
}
LONG_RTT = Series(
    "sensitivity/long-rtt",
    "baseline",
    full={
        "allocators": ["gtb"],
        "repeat": 3,
        "window": _WINDOW,
        "flows": [
            {"limiter": limiter, "count": count, "rtt": f"{_LONG_RTT_MS}ms"}
            for limiter, count in (("l1", 3), ("l2", 7))
        ],
    },
    quick=_QUICK,
    settings=("gossip.interval=50ms", "limit.ewma=0"),
    simulated=True,
    pace=_PACE,
)
SPOTS = {
    # The corners. With long intervals GRD's bursts exceed the emulated links, and GTB shows nothing
    # new.
    (10, 0): _spot(10, 0, ["gtb", "grd", "fps"]),
    (10, 0.75): _spot(10, 0.75, ["grd", "fps"]),
    (500, 0): _spot(500, 0, ["fps"]),
    (500, 0.75): _spot(500, 0.75, ["fps"]),
}


def use(run: Run, limit_bps: float) -> float:
    """Short-term utilisation."""
    return statistics.fmean(min(rate / limit_bps, 1.0) for rate in totals(run, 1.0))


def evaluate(results: Results) -> Finding:
    """Check how each allocator depends on the interval."""

    def over_grid(allocator: str) -> dict[tuple[int, float], float | None]:
        return {cell: results.jain(series.name, allocator) for cell, series in GRID.items()}

    def along(allocator: str) -> list[float | None]:
        return [results.jain(GRID[ms, _USUAL_EWMA].name, allocator) for ms in _INTERVALS_MS]

    def used(interval_ms: int, allocator: str) -> float | None:
        series = GRID[interval_ms, _USUAL_EWMA].name
        limit_bps = results.limit_bps(series)
        return results.median(series, allocator, lambda run: use(run, limit_bps))

    gtb, fps = over_grid("gtb"), over_grid("fps")
    smallest = (_INTERVALS_MS[0], 0)
    gtb_there = results.jain(SPOTS[smallest].name, "gtb")
    elsewhere = [jain for cell, jain in gtb.items() if cell != smallest and jain is not None]
    unfair = sum(jain < _FAIR_GTB for jain in elsewhere) / len(elsewhere) if elsewhere else None
    least_grd = _extreme(min, along("grd"))
    least_fps = _extreme(min, fps.values())
    checks = [
        Check("GTB is fair with the smallest interval and no filter, on the testbed: Jain's index",
              gtb_there, least=_FAIR_GTB),
        Check("GTB is unfair almost everywhere else: part of the cells with Jain's index below "
              f"{_FAIR_GTB:g}", unfair, least=0.8),
        Check("GTB is fairer with longer round trips: Jain's index with 200 ms less that with "
              "40 ms (intervals of 50 ms, no filter)",
              difference(results.jain(LONG_RTT.name, "gtb"), gtb[50, 0]), least=0.02),
        Check("GRD stays fair up to 500 ms: the least Jain's index (EWMA 0.1)", least_grd,
              least=_FAIR),
        Check("GRD loses short-term utilisation with 500 ms: utilisation with 50 ms less that",
              difference(used(50, "grd"), used(500, "grd")), least=0.1),
    ]  # fmt: skip
    for allocator in FPS:
        usual = along(allocator)
        most, least = _extreme(max, usual), _extreme(min, usual)
        using = [used(ms, allocator) for ms in _INTERVALS_MS]
        checks += [
            Check(f"{NAMES[allocator]} is insensitive to the interval: range of Jain's index "
                  "(EWMA 0.1)", difference(most, least), most=0.05),
            Check(f"{NAMES[allocator]} is insensitive to the interval: the least short-term "
                  "utilisation (EWMA 0.1)", _extreme(min, using), least=0.95),
        ]  # fmt: skip
    rows = []
    for cell, spot in SPOTS.items():
        for allocator in ("gtb", "grd", "fps"):
            if not results.runs(spot.name, allocator):
                continue
            here, there = (results.jain(one.name, allocator) for one in (spot, GRID[cell]))
            used_here, used_there = (
                results.used(one.name, allocator) for one in (spot, GRID[cell])
            )
            rows.append([f"{NAMES[allocator]}, {cell[0]} ms, EWMA {cell[1]:g}",
                         *texts([here, there, used_here, used_there])])  # fmt: skip
            checks += [
                Check(f"Testbed and simulator agree, {rows[-1][0]}: difference of {what}",
                      difference(*pair), least=-0.05, most=0.05)
                for what, pair in (
                    ("Jain's index", (here, there)),
                    ("the aggregates, of the limit", (used_here, used_there)),
                )
            ]  # fmt: skip
    ours = (
        f"GTB: Jain {text(gtb_there, 3)} with 10 ms and no filter (testbed; simulator "
        f"{text(gtb[smallest], 3)}), below {_FAIR_GTB:g} in "
        f"{text(unfair)} of the other cells; GRD: at least {text(least_grd, 3)} up to 500 ms, "
        f"short-term utilisation {text(used(50, 'grd'), 3)} with 50 ms and "
        f"{text(used(500, 'grd'), 3)} with 500 ms; FPS: at least {text(least_fps, 3)} in all "
        f"cells, utilisation {text(used(50, 'fps'), 3)} and {text(used(500, 'fps'), 3)}"
    )
    header = ["", "Jain, testbed", "simulator", "aggregate / limit, testbed", "simulator"]
    return Finding(
        checks,
        ours,
        "With a heavy filter GTB's shares move so slowly that a minute does not show their goal. "
        "Do not trust the simulator's GTB and GRD with 10 ms and no filter: it does not model "
        "what happens below 10 ms. Random drop's probability is constant for an interval, and "
        "TCP moves during the 500 ms.",
        [Table("Cells on the testbed", header, rows)] if rows else [],
    )


def _extreme(which: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    """The least or the most of the known values; None without any."""
    known = [value for value in values if value is not None]
    return which(known) if known else None


def draw(results: Results, directory: Path) -> list[Path]:
    """Heat maps of each allocator: Jain's index, short-term utilisation, the aggregate."""
    names = [
        name for name in _ALLOCATORS
        if any(results.runs(series.name, name) for series in GRID.values())
    ]  # fmt: skip
    if not names:
        return []
    limit_bps = results.limit_bps(next(iter(results.by_series)))

    def short_term(series: str, allocator: str) -> float | None:
        return results.median(series, allocator, lambda run: use(run, limit_bps))

    maps = (
        _Map("Jain's index", results.jain, (0.5, 1.0), "viridis"),
        _Map("short-term utilisation", short_term, (0.5, 1.0), "viridis"),
        _Map("aggregate over the limit", results.used, (0.5, 1.5), "coolwarm"),
    )
    with rc_context({**STYLE, "axes.grid": False}):
        figure, grid = plt.subplots(
            len(maps), len(names), figsize=(3.3 * len(names), 3.1 * len(maps)), squeeze=False,
            sharex=True, sharey=True, layout="constrained",
        )  # fmt: skip
        for row, one in zip(grid, maps, strict=True):
            for axes, name in zip(row, names, strict=True):
                values = {cell: one.of(series.name, name) for cell, series in GRID.items()}
                _paint(axes, one, values)
                axes.set_title(f"{NAMES[name]}: {one.title}", fontsize=8)
        figure.supxlabel("1-second EWMA parameter", fontsize=10)
        figure.supylabel("Estimate interval (ms)", fontsize=10)
        return [save(figure, directory / "sensitivity.png")]


class _Map(NamedTuple):
    """The contents of a heat map."""

    title: str
    of: Callable[[str, str], float | None]
    """The value of a series and an allocator."""
    range: tuple[float, float]
    colours: str


def _paint(axes: Axes, one: _Map, values: Mapping[tuple[int, float], float | None]) -> None:
    """Draw the cells with their values."""
    rows = [[values[ms, ewma] for ewma in _EWMAS] for ms in _INTERVALS_MS]
    least, most = one.range
    axes.imshow([[float("nan") if value is None else value for value in row] for row in rows],
                cmap=one.colours, vmin=least, vmax=most, aspect="auto")  # fmt: skip
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            dark = value is not None and value < (least + most) / 2
            axes.text(x, y, text(value), ha="center", va="center", fontsize=8,
                      color="white" if dark and one.colours == "viridis" else "black")  # fmt: skip
    axes.set_xticks(range(len(_EWMAS)), [f"{ewma:g}" for ewma in _EWMAS])
    axes.set_yticks(range(len(_INTERVALS_MS)), [str(ms) for ms in _INTERVALS_MS])


FIGURE = Figure(
    "sensitivity",
    "Section 5.1: sensitivity to interval and EWMA",
    "GTB is fair almost only with the smallest interval and no filter, or with longer round "
    "trips; GRD stays fair, but loses short-term utilisation with 500 ms; FPS is insensitive to "
    "the interval",
    [*GRID.values(), LONG_RTT, *SPOTS.values()],
    evaluate,
    draw,
)
