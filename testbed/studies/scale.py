"""Beyond figure 8: up to 10,000 limiters, in the simulator, and the cost of a limiter.

The fleets are those of `testbed.studies.fleets`, with push-sum and 50 ms. Other allocators than FPS
run with up to 1,000 limiters, to show where each stops working.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import Results, ratio, text, texts
from testbed.plot import COLOURS, limit_line
from testbed.reproduce.baseline import NAMES
from testbed.studies.fleets import BRANCHING, cost, error, fleet

_SIZES = (490, 1000, 3000, 10_000)
_QUICK = 490
_REPEATED, _TIMES = 490, 3
_OTHERS = ("gtb", "grd", "fps-random-drop")
_OTHER_SIZES = (100, 490, 1000)

SERIES = {
    n: fleet(f"scale/{n}", n, ["ctb", "fps"], quick=n == _QUICK,
             repeat=_TIMES if n == _REPEATED else 1)
    for n in _SIZES
}  # fmt: skip
OTHERS = {n: fleet(f"scale/{n}-others", n, _OTHERS) for n in _OTHER_SIZES}


def evaluate(results: Results) -> Finding:
    """Check limit and fairness at every size, and list the costs."""
    sizes = [n for n in _SIZES if SERIES[n].name in results.by_series] or list(_SIZES)
    checks = [
        check
        for n in sizes
        for check in (
            near(f"{n:,} limiters: FPS with branching {BRANCHING}, aggregate over the limit",
                 results.used(SERIES[n].name, "fps"), 1.0, 0.05),
            Check(f"{n:,} limiters: FPS with branching {BRANCHING}, Jain's index over CTB's",
                  ratio(results.jain(SERIES[n].name, "fps"), results.jain(SERIES[n].name, "ctb")),
                  least=0.9),
        )
    ]  # fmt: skip
    most = sizes[-1]
    name = SERIES[most].name
    ours = (
        f"with {most:,} limiters FPS delivers {text(results.used(name, 'fps'), 3)} of the limit, "
        f"Jain {text(results.jain(name, 'fps'), 3)} (CTB {text(results.jain(name, 'ctb'), 3)}); "
        f"control traffic {text(results.control(name, 'fps'), 3)} of the limit at every size"
    )
    return Finding(
        checks,
        ours,
        "The paper stops at 490, because its testbed was not larger.",
        [
            Table("What a limiter costs (FPS, push-sum, 50 ms)",
                  ["limiters", "sent, bytes/s", "processor a tick, us", "90th percentile",
                   "memory, kB", "with links", "error of the total"],
                  [_costs(results, n) for n in sizes]),
            Table("Aggregate over the limit, its highest second, and Jain's index",
                  ["limiters", "allocator", "aggregate", "highest 1 s", "Jain", "Jain over CTB's"],
                  _allocators(results)),
        ],
    )  # fmt: skip


def _costs(results: Results, limiters: int) -> list[str]:
    name = SERIES[limiters].name
    sent = results.median(name, "fps", lambda run: float(run["gossip"]["bytes_per_limiter_per_s"]))
    return [
        f"{limiters:,}", text(sent, 0), cost(results, name, "tick_us"),
        cost(results, name, "tick_us_p90"), cost(results, name, "bytes", 1000),
        cost(results, name, "links"), text(error(results, name), 3),
    ]  # fmt: skip


def _allocators(results: Results) -> list[list[str]]:
    rows = []
    for n in sorted({*_SIZES, *_OTHER_SIZES}):
        central = results.jain(SERIES[n].name, "ctb") if n in SERIES else None
        for name in ("ctb", "fps", *_OTHERS):
            series = (SERIES if name in ("ctb", "fps") else OTHERS).get(n)
            if series is None or not results.runs(series.name, name):
                continue
            jain = results.jain(series.name, name)
            rows.append([f"{n:,}", NAMES[name],
                         *texts([results.used(series.name, name),
                                 results.highest(series.name, name), jain]),
                         text(ratio(jain, central), 2)])  # fmt: skip
    return rows


@chart("scale", 11, 4.2, 2)
def draw(results: Results, both: Sequence[Axes]) -> bool:
    """Aggregate and fairness by the number of limiters; a line for each allocator."""
    rate, fairness = both
    drawn = 0
    for name, colour in zip(("fps", "ctb", *_OTHERS), COLOURS, strict=False):
        of = SERIES if name in ("fps", "ctb") else OTHERS
        sizes = [n for n in of if results.runs(of[n].name, name)]
        if not sizes:
            continue
        drawn += 1
        figures: tuple[Callable[[str, str], float | None], ...] = (results.used, results.jain)
        for axes, figure_of in zip((rate, fairness), figures, strict=True):
            axes.plot(sizes, [figure_of(of[n].name, name) or 0.0 for n in sizes], "o-",
                      color=colour, label=NAMES[name], markersize=4)  # fmt: skip
    limit_line(rate, 1, "limit")
    rate.set_ylabel("Delivered, over the limit")
    fairness.set_ylabel("Jain's index")
    for axes in (rate, fairness):
        axes.set_xscale("log")
        axes.set_xlabel("Limiters")
        axes.set_ylim(bottom=0)
    rate.legend(fontsize=8)
    return drawn > 0


FIGURE = Figure(
    "scale",
    "Beyond figure 8: up to 10,000 limiters",
    "Nothing beyond 490 limiters, for lack of testbed resources",
    [series for _, series in sorted([*SERIES.items(), *OTHERS.items()], key=itemgetter(0))],
    evaluate,
    draw,
    page="scale",
)
