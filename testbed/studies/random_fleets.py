"""Random fleets: `fair` beside one bucket (not in the paper).

`random_fleets_cases` draws the fleets. All fleets run in the simulator. Two measures of a fleet
with `fair` are compared with those of the same traffic behind one bucket (CTB): the use of the
limit, and Jain's index of the TCP flows' rates over their max-min shares. The shares leave out web
requests, which lower the shares of all TCP flows alike. The third measure is the bytes above the
limit in any interval, over their proved bound (docs/conservative-rule.md).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from testbed import experiment_file
from testbed.chaos.promises import byte_bound, fabric
from testbed.experiment import Experiment
from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text
from testbed.harness.series import Series
from testbed.result import jain
from testbed.studies.any_traffic_measures import AGGREGATE, Seen, excess_bytes
from testbed.studies.random_fleets_cases import document

FLEETS = 60
_QUICK = 6
_ALLOCATORS = ("fair", "ctb")
_NOISE = 0.05
"""Largest difference of two runs with the same traffic that chance explains."""
_SHOWN = 12
"""Worst fleets in the table."""
_TICK_S, _PACKET_S = 4e-4, 2e-5
"""Processor time of a tick and of a packet."""


@dataclass(frozen=True, slots=True)
class FleetSeries(Series):
    """The runs of the fleet with a seed."""

    fleet: int = 0

    def load(self, quick: bool) -> Experiment:
        """See `Series.load`."""
        made = document(self.fleet) | dict(self.full) | dict((self.quick or {}) if quick else {})
        return experiment_file.build(made, self.name)


def _series(fleet: int) -> FleetSeries:
    made = document(fleet)
    drawn = experiment_file.build({**made, "allocators": list(_ALLOCATORS)}, f"fleet {fleet}")
    ticks = len(drawn.limiters) * 1e9 / drawn.table.gossip.interval
    return FleetSeries(
        f"random-fleets/{fleet}",
        "",
        full={"allocators": list(_ALLOCATORS), "repeat": 1},
        quick={} if fleet <= _QUICK else None,
        simulated=True,
        pace=ticks * _TICK_S + drawn.table.limit.rate / 1500 * _PACKET_S,
        paces={"ctb": drawn.table.limit.rate / 1500 * _PACKET_S},
        fleet=fleet,
    )


ALL_SERIES = [_series(fleet) for fleet in range(1, FLEETS + 1)]


def _fairness(seen: Seen) -> float:
    """Jain's index of the TCP flows' rates over their max-min shares; 0 if none gets a byte."""
    shares = [seen.rates[flow] / seen.deserved[flow] for flow in seen.tcp]
    return jain(shares) if any(shares) else 0.0


def _excess(seen: Seen) -> float:
    """The most bytes above the limit in any interval of whole steps, over their proved bound."""
    limit, limiters = seen.experiment.table.limit, len(seen.experiment.limiters)
    interval_ns = seen.experiment.table.gossip.interval
    rounds = fabric("tree", limiters).news_ns / fabric("tree", limiters).membership.interval_ns
    bound = byte_bound(
        limit.rate, limit.burst, limiters, round(rounds * interval_ns), interval_ns=interval_ns
    )
    return excess_bytes(seen) / bound


@dataclass(frozen=True, slots=True)
class _Compared:
    """A fleet with both allocators."""

    fleet: int
    ours: Seen
    theirs: Seen

    def behind(self, of: Callable[[Seen], float]) -> float:
        """A measure with one bucket, less its value with `fair`."""
        return of(self.theirs) - of(self.ours)


def _compared(results: Results) -> list[_Compared]:
    found = []
    for series in ALL_SERIES:
        runs: dict[str, Any] = {
            name: next(iter(results.runs(series.name, name)), None) for name in _ALLOCATORS
        }
        if all(runs.values()):
            built = experiment_file.build(results.by_series[series.name]["definition"], series.name)
            found.append(
                _Compared(series.fleet, *(Seen(runs[name], built) for name in _ALLOCATORS))
            )
    return found


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def evaluate(results: Results) -> Finding:
    """Check use, fairness and bytes of all fleets; show the worst ones."""
    fleets = _compared(results)
    unused = [one.behind(AGGREGATE.of) for one in fleets]
    unfair = [one.behind(_fairness) for one in fleets]
    checks = [
        Check("use of the limit, CTB's less fair's, median", _median(unused), most=0.02),
        Check("use of the limit, CTB's less fair's, the most", max(unused, default=None),
              most=_NOISE),
        Check("Jain's index of the TCP flows, CTB's less fair's, the most",
              max(unfair, default=None), most=_NOISE),
        Check("bytes above the limit over their proved bound, the most",
              max((_excess(one.ours) for one in fleets), default=None), most=1.0),
    ]  # fmt: skip
    worst = sorted(fleets, key=lambda one: -one.behind(AGGREGATE.of))[:_SHOWN]
    return Finding(
        checks,
        f"{len(fleets)} fleets; medians with CTB and fair: use "
        f"{text(_median([AGGREGATE.of(one.theirs) for one in fleets]))} and "
        f"{text(_median([AGGREGATE.of(one.ours) for one in fleets]))}, Jain's index "
        f"{text(_median([_fairness(one.theirs) for one in fleets]))} and "
        f"{text(_median([_fairness(one.ours) for one in fleets]))}",
        tables=[
            Table(
                "The fleets in which fair uses least of the limit beside CTB",
                ["fleet", "limit, Mbit/s", "limiters", "interval, ms", "flows", "CTB: use, Jain",
                 "fair: use, Jain", "bytes over the bound"],
                [_row(one) for one in worst],
            )
        ],
    )  # fmt: skip


def _row(one: _Compared) -> list[str]:
    table = one.ours.experiment.table
    return [
        f"{one.fleet}", f"{table.limit.rate * 8e-6:.3g}", f"{len(one.ours.experiment.limiters)}",
        f"{table.gossip.interval / 1e6:.0f}", f"{len(one.ours.rates)}",
        *(f"{AGGREGATE.of(seen):.3f}, {_fairness(seen):.3f}" for seen in (one.theirs, one.ours)),
        f"{_excess(one.ours):.3f}",
    ]  # fmt: skip


@chart("random-fleets", 6, 4)
def draw(results: Results, axes: Axes) -> bool:
    """Jain's index of each fleet with `fair` over that with one bucket."""
    fleets = _compared(results)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    axes.plot(
        [_fairness(one.theirs) for one in fleets], [_fairness(one.ours) for one in fleets], "o"
    )
    axes.set_xlabel("Jain's index of the TCP flows, CTB")
    axes.set_ylabel("fair")
    return bool(fleets)


FIGURE = Figure(
    "random-fleets",
    "Random fleets",
    "Not in the paper. Goal: fair uses the limit as one bucket does, divides it more evenly, and "
    "keeps to its bound on bytes",
    ALL_SERIES,
    evaluate,
    draw,
    page="any-traffic",
)
