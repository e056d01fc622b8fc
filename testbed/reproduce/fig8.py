"""Figure 8 (section 5.6): fairness and delivered rate by the number of limiters, up to 490.

0 to 5 flows arrive at each limiter, one every 100 ms, and each lives 60 s; in the simulator. The
measured 20 s begin when all flows have started. If the first flows have ended by then, a run begins
with the number of flows that live at that time.

More runs have lost updates, or eight times fewer updates, or another reading of the paper's
"1-second EWMA parameter" of 0.1 (`testbed.reproduce.baseline.HASTY`). GRD's failure to limit more
than 50 limiters shows with that reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, difference, ratio, text, texts
from testbed.harness.series import Series
from testbed.plot import COLOURS, limit_line
from testbed.reproduce.baseline import HASTY as NO_FILTER
from testbed.reproduce.baseline import NAMES

_SIZES = (10, 50, 100, 200, 350, 490)
_BRANCHING = (1, 3, 7)
_USUAL = 3
_QUICK_SIZES, _QUICK_BRANCHING, _QUICK_S = (10, 50), (1, 3), 8
_LIFE_S, _FLOWS_A_LIMITER, _EVERY_S = 60, 2.5, 0.1
_LEAST_WARMUP_S = 12
_FILL_S = 4
_MEASURED_S = 20
_GRD_FAILS_BEYOND = 50
_LOSSES = (0.005, 0.05)
"""The first is the loss in the paper's figure 9."""
_PACKETS_PACE, _LIMITER_PACE = 0.1, 0.0018
"""Processor seconds for a simulated second of 50 Mbit/s, and of a limiter."""


def _series(
    limiters: int, branching: int, what: str = "", *settings: str, allocators: Sequence[str] = ()
) -> Series:
    """`what` names a series that is not in the paper's figure, and has more settings."""
    all_started_s = math.ceil(limiters * _FLOWS_A_LIMITER * _EVERY_S) + 1
    filled = all_started_s + _MEASURED_S > _LIFE_S
    warmup_s = _LEAST_WARMUP_S if filled else max(_LEAST_WARMUP_S, all_started_s)
    quick = limiters in _QUICK_SIZES and branching in _QUICK_BRANCHING and not what
    allocators = allocators or (["ctb", "grd", "fps"] if branching == _USUAL else ["fps"])
    return Series(
        f"fig8/{limiters}-{what or f'branching-{branching}'}",
        "fig8",
        full={
            "allocators": list(allocators),
            "warmup": f"{warmup_s}s",
            "seconds": warmup_s + _MEASURED_S,
        },
        quick={"seconds": warmup_s + _QUICK_S} if quick else None,
        settings=(
            f"churn.limiters={limiters}",
            f"gossip.branching={branching}",
            *([f"churn.fill={_FILL_S}s"] if filled else []),
            *settings,
        ),
        simulated=True,
        pace=_PACKETS_PACE + _LIMITER_PACE * limiters,
        paces={"ctb": _PACKETS_PACE},
    )


SERIES = {(n, branching): _series(n, branching) for n in _SIZES for branching in _BRANCHING}
RARELY = _series(
    _SIZES[-1], _USUAL, "every-400ms", "gossip.interval=400ms", "limit.interval=50ms",
    allocators=["fps"],
)  # fmt: skip
"""Fewer updates. Estimates are as frequent as in all other series."""
LOSSY = {
    loss: _series(_SIZES[-1], _USUAL, f"loss-{loss:g}", f"gossip.loss={loss:g}", allocators=["fps"])
    for loss in _LOSSES
}
HASTY = {n: _series(n, _USUAL, "hasty", NO_FILTER, allocators=["grd", "fps"]) for n in _SIZES}
"""The estimate keeps a tenth of its weight each interval."""


def evaluate(results: Results) -> Finding:
    """Check limit, fairness beside CTB's, control traffic, and GRD's failure."""

    def name(limiters: int, branching: int = _USUAL) -> str:
        return SERIES[limiters, branching].name

    sizes = [n for n in _SIZES if name(n) in results.by_series] or list(_SIZES)
    checks = [
        check
        for n in sizes
        for check in (
            near(f"{n} limiters: FPS with branching {_USUAL}, aggregate over the limit",
                 results.used(name(n), "fps"), 1.0, 0.05),
            Check(f"{n} limiters: FPS with branching {_USUAL}, Jain's index over CTB's",
                  ratio(results.jain(name(n), "fps"), results.jain(name(n), "ctb")), least=0.9),
        )
    ]  # fmt: skip
    checks += _hasty_checks(results)
    checks += [
        near(f"{_SIZES[-1]} limiters, {loss:.1%} of the updates lost: FPS, aggregate over the "
             "limit", results.used(series.name, "fps"), 1.0, 0.05)
        for loss, series in LOSSY.items()
        if results.has(series.name)
    ]  # fmt: skip
    most = sizes[-1]
    gain = difference(
        results.jain(name(most, _BRANCHING[-1]), "fps"), results.jain(name(most), "fps")
    )
    if results.has(name(most, _BRANCHING[-1])):
        checks.append(Check("Beyond branching 3 there is little benefit: gain of Jain's index "
                            "with 7", gain, most=0.05))  # fmt: skip
    if results.has(RARELY.name):
        checks += [
            near(f"{_SIZES[-1]} limiters that gossip every 400 ms: FPS, aggregate over the limit",
                 results.used(RARELY.name, "fps"), 1.0, 0.05),
            Check(f"{_SIZES[-1]} limiters that gossip every 400 ms: control traffic over the "
                  "limit", results.control(RARELY.name, "fps"), most=0.03),
        ]  # fmt: skip
    rows = [
        [str(n), *texts(of(name(n), one) for of in (results.used, results.jain)
                        for one in ("ctb", "grd", "fps"))]
        for n in sizes
    ]  # fmt: skip
    ours = (
        f"with branching {_USUAL} and {most} limiters FPS delivers "
        f"{text(results.used(name(most), 'fps'), 3)} of the limit (GRD "
        f"{text(results.used(name(most), 'grd'), 3)}), Jain "
        f"{text(results.jain(name(most), 'fps'), 3)} (CTB "
        f"{text(results.jain(name(most), 'ctb'), 3)}); control traffic "
        f"{text(results.control(name(most), 'fps'), 3)} of the limit"
    )
    return Finding(
        checks,
        ours,
        "The paper's 2.88 Kbps a limiter are kilobytes a second: 22.6 % of the limit at 490, not "
        "below 3 %. GRD fails to limit when almost nothing filters its rates, which is one "
        "reading of the paper's EWMA of 0.1. With ours (a tenth of the weight after a second) it "
        "loses fairness rather than the limit. In push-sum the mass of a lost update comes with "
        "the link's next one, after 163 intervals among 490 limiters; a lost update costs a tree "
        "nothing.",
        [
            Table(f"Branching {_USUAL}: aggregate over the limit, and Jain's index",
                  ["limiters", "CTB", "GRD", "FPS", "Jain: CTB", "GRD", "FPS"], rows),
            Table("The same with an EWMA of 0.1 an interval",
                  ["limiters", "GRD", "FPS", "Jain: GRD", "FPS"],
                  [[str(n), *texts(of(series.name, one) for of in (results.used, results.jain)
                                   for one in ("grd", "fps"))]
                   for n, series in HASTY.items() if series.name in results.by_series]),
        ],
    )  # fmt: skip


def _hasty_checks(results: Results) -> list[Check]:
    """Almost without a filter GRD fails to limit many limiters, and FPS does not."""
    return [
        check
        for n, series in HASTY.items()
        if n > _GRD_FAILS_BEYOND and results.has(series.name)
        for check in (
            Check(f"{n} limiters, EWMA of 0.1 an interval: GRD fails to hold the limit, aggregate "
                  "over it", results.used(series.name, "grd"), least=1.05),
            near(f"{n} limiters, EWMA of 0.1 an interval: FPS, aggregate over the limit",
                 results.used(series.name, "fps"), 1.0, 0.05),
        )
    ]  # fmt: skip


@chart("fig8", 11, 4.2, 2)
def draw(results: Results, both: Sequence[Axes]) -> bool:
    """Fairness and delivered rate by the number of limiters; a line for each branching."""
    lines = [("FPS, branching " + str(branching), "fps", branching) for branching in _BRANCHING]
    lines += [("CTB", "ctb", _USUAL), (f"{NAMES['grd']}, branching {_USUAL}", "grd", _USUAL)]
    fairness, rate = both
    drawn = 0
    for (label, allocator, branching), colour in zip(lines, COLOURS, strict=False):
        series = {n: SERIES[n, branching].name for n in _SIZES}
        sizes = [n for n in _SIZES if results.runs(series[n], allocator)]
        if not sizes:
            continue
        drawn += 1
        for axes, of in ((fairness, results.jain), (rate, _mbit(results))):
            values = [of(series[n], allocator) or 0.0 for n in sizes]
            axes.plot(sizes, values, "o-", color=colour, label=label, markersize=4)
    fairness.set_ylabel("Jain's index")
    fairness.set_ylim(0, 1.02)
    rate.set_ylabel("Delivered rate (Mbit/s)")
    rate.set_ylim(0, 100)
    limit_line(rate, 50, "limit")
    for axes in (fairness, rate):
        axes.set_xlabel("Limiters")
        axes.set_xlim(left=0)
    rate.legend(fontsize=8)
    return drawn > 0


def _mbit(results: Results) -> Callable[[str, str], float | None]:
    def of(series: str, allocator: str) -> float | None:
        used = results.used(series, allocator)
        return None if used is None else used * results.limit_bps(series) / 1e6

    return of


FIGURE = Figure(
    "fig8",
    "Figure 8: up to 490 limiters",
    "With a branching factor of 3 and more FPS holds the limit and its fairness up to 490 "
    "limiters; beyond 50 limiters GRD fails to limit the aggregate",
    [*SERIES.values(), RARELY, *LOSSY.values(), *HASTY.values()],
    evaluate,
    draw,
)
