"""Forty and a hundred real daemons with one limit, and the same simulated (not in the paper).

Flows arrive at the limiters as in figure 8, 0 to 5 at each. A hundred daemons gossip half as often,
because two processors carry no more. On the testbed the daemons' cost is measured, too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.axes import Axes

from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table, near
from testbed.harness.results import OfRun, Results, Run, difference, text, texts, totals
from testbed.harness.series import Series
from testbed.plot import COLOURS, MBIT, limit_line

_ALLOCATOR = "fps"
_AGREEMENT = 0.03


@dataclass(frozen=True, slots=True)
class DaemonFleet:
    """A fleet on the testbed and in the simulator."""

    limiters: int
    testbed: Series
    simulated: Series

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the series, the testbed's first."""
        return self.testbed.name, self.simulated.name


def _fleet(limiters: int, testbed: Series, pace: float) -> DaemonFleet:
    name = f"{testbed.name}-sim"
    simulated = replace(testbed, name=name, simulated=True, alone=False, pace=pace)
    return DaemonFleet(limiters, testbed, simulated)


FORTY = _fleet(
    40,
    Series("fleet40", "fleet40", quick={"seconds": 24, "repeat": 1}, alone=True, overhead_s=30.0),
    pace=0.1,
)
HUNDRED = _fleet(
    100,
    Series(
        "fleet100",
        "fleet40",
        # By the end of the warm-up all flows have started.
        full={"warmup": "26s", "seconds": 46, "repeat": 2},
        quick=None,
        settings=("churn.limiters=100", "limit.rate=15mbit", "gossip.interval=100ms"),
        alone=True,
        overhead_s=50.0,
    ),
    pace=0.15,
)


def _believed(run: Run) -> float:
    return float(run["gossip"].get("believed_total", {}).get("rms_error", math.nan))


def _daemons(key: str, of_all: Callable[[list[float]], float]) -> OfRun:
    """A value over all daemons of a run; NaN in the simulator, which has no daemons."""

    def of_run(run: Run) -> float:
        values = [float(cost[key]) for cost in run.get("daemons", {}).values()]
        return of_all(values) if values else math.nan

    return of_run


def evaluate(fleet: DaemonFleet, results: Results) -> Finding:
    """Compare testbed and simulator, and list a daemon's cost."""

    def both(of_run: OfRun) -> tuple[float | None, float | None]:
        here, there = (_known(results.median(side, _ALLOCATOR, of_run)) for side in fleet.sides)
        return here, there

    limit_bps = fleet.testbed.load(False).table.limit.rate * 8
    used = both(lambda run: float(run["aggregate_bps"]) / limit_bps)
    jain = both(lambda run: float(run["jain"]))
    believed = both(_believed)
    highest = both(lambda run: max(totals(run, 1.0)) / limit_bps)
    gossip = both(lambda run: float(run["gossip"]["bytes_per_limiter_per_s"]))
    count = both(lambda run: float(len(run["series"])))
    cores = {
        name: both(_daemons("core_share", of_all))[0]
        for name, of_all in (("median", statistics.median), ("most", max), ("sum", sum))
    }
    memory = both(_daemons("resident_bytes", statistics.median))[0]
    megabytes = None if memory is None else memory / 1e6
    checks = [
        Check("Limiters", count[0], least=fleet.limiters),
        near("FPS: aggregate over the limit", used[0], 1.0, 0.03),
        near("FPS: aggregate over the limit, testbed less simulator", difference(*used), 0.0,
             _AGREEMENT),
        near("FPS: Jain's index over the flows, testbed less simulator", difference(*jain), 0.0,
             _AGREEMENT),
        near("FPS: error of the believed total, testbed less simulator", difference(*believed),
             0.0, _AGREEMENT),
    ]  # fmt: skip
    rows = [
        ["aggregate / limit", *texts(used)],
        ["Jain's index over the flows", *texts(jain)],
        ["highest 1 s / limit", *texts(highest)],
        ["error of the believed total, root mean square", *texts(believed)],
        ["control traffic of a limiter, bytes/s", *texts(gossip, 0)],
        *(
            [f"processor time of a daemon, of a core: {name}", text(value, 4), "-"]
            for name, value in cores.items()
        ),
        ["memory of a daemon, MB: median", text(megabytes, 1), "-"],
    ]
    return Finding(
        checks,
        f"testbed and simulator: aggregate {text(used[0], 3)} and {text(used[1], 3)}, Jain "
        f"{text(jain[0], 3)} and {text(jain[1], 3)}, error of the believed total "
        f"{text(believed[0], 3)} and {text(believed[1], 3)}; a daemon takes "
        f"{text(cores['median'], 3)} of a core and {text(megabytes, 0)} MB",
        tables=[Table("Medians over the runs", ["", "testbed", "simulator"], rows)],
    )


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def draw(fleet: DaemonFleet, results: Results, three: Sequence[Axes]) -> bool:
    """The total over time, the distribution of goodput, and the error of the believed total."""
    sides = [
        (label, runs[0], colour)
        for label, side, colour in zip(("testbed", "simulator"), fleet.sides, COLOURS, strict=False)
        if (runs := results.runs(side, _ALLOCATOR))
    ]
    if not sides:
        return False
    total, flows, error = three
    for label, run, colour in sides:
        rates = [rate / MBIT for rate in totals(run, 1.0, 0.0)]
        total.plot([index + 0.5 for index in range(len(rates))], rates, color=colour,
                   label=label)  # fmt: skip
        own = sorted(flow["goodput_bps"] / 1e3 for flow in run["flows"])
        flows.plot(own, [(index + 1) / len(own) for index in range(len(own))], color=colour)
        series = run["gossip"].get("believed_total", {}).get("series", [])
        error.plot([t for t, _ in series], [value for _, value in series], color=colour)
    limit_mbit = fleet.testbed.load(False).table.limit.rate * 8 / MBIT
    limit_line(total, limit_mbit)
    total.set_ylim(0, 1.5 * limit_mbit)
    total.set_title("Forwarding rate, all limiters (Mbit/s)")
    total.set_xlabel("Time (s)")
    total.legend()
    flows.set_title("Part of the flows with at most this goodput")
    flows.set_xlabel("Goodput of a flow (kbit/s)")
    flows.set_xlim(left=0)
    error.set_title("Error of the believed total")
    error.set_xlabel("Time (s)")
    error.set_ylim(0, 0.5)
    return True


def _figure(fleet: DaemonFleet, how_many: str) -> Figure:
    return Figure(
        fleet.testbed.name,
        f"{how_many} real daemons, and the simulator",
        f"Not in the paper. Goal: {fleet.limiters} daemons hold one limit within 3 %, and the "
        "simulator of the same fleet agrees: the aggregate within 3 %, Jain's index within 0.03",
        [fleet.testbed, fleet.simulated],
        partial(evaluate, fleet),
        chart(fleet.testbed.name, 13, 3.8, 3)(partial(draw, fleet)),
    )


FIGURES = (_figure(FORTY, "Forty"), _figure(HUNDRED, "A hundred"))
