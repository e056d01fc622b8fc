"""Less control traffic: fewer updates to fewer peers among figure 8's 490 limiters.

With the paper's setting control traffic is 22.6 % of the limit. Here every limiter still estimates
and enforces each 50 ms, but sends updates less often, with each fabric. The price is a slower
reaction of the fleet. So a second experiment doubles the flows at one moment, at three limiters.

Daemons probe each other, and simulated limiters do not. Without loss this is one probe and one
acknowledgement a period for any fabric and size (`drld.gossip.health.probes`), which is added here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from matplotlib.axes import Axes

from drld.config.probes import PROFILES
from drld.gossip.fabrics import FABRICS
from drld.model import NS_PER_S
from testbed.harness.draw import chart
from testbed.harness.figure import Figure
from testbed.harness.finding import Check, Finding, Table
from testbed.harness.results import Results, text, texts, totals
from testbed.harness.series import Series
from testbed.plot import COLOURS, limit_line
from testbed.studies import scale
from testbed.studies.fleets import PAPERS_LIMITERS, WARMUP_S, error, fleet

_CHEAP = 0.03
_PROBE_BYTES = 72
"""IPv4 bytes of a probe or an acknowledgement without rumours (docs/wire-format.md)."""
_THRIFTY = "wan"
"""The profile of probes for little control traffic."""
_CROWD_AFTER_S, _CROWD_FLOWS, _CROWD_LIMITERS = 2, 200, 3
"""The measured seconds before the crowd, its flows at each limiter, and its limiters."""
_SETTLED = 1.05
_HIGHEST = 1.15
_WINDOW_S = 0.5
_SECONDS, _CROWD_SECONDS = 6, 10
"""The measured time of both experiments, s."""
_ROUNDS = 48
"""Rounds until a tree of this size is complete (18), and then has all shares in force (26). Long
rounds take longer than the start of the flows."""


class Manner(NamedTuple):
    """A way of gossiping."""

    fabric: str
    interval_ms: int
    branching: int

    @property
    def name(self) -> str:
        """Its name in series and tables."""
        return f"{self.fabric}-{self.interval_ms}ms-{self.branching}"

    @property
    def settings(self) -> tuple[str, ...]:
        """The experiment's settings."""
        return (
            f"gossip.fabric={self.fabric}",
            f"gossip.interval={self.interval_ms}ms",
            f"gossip.branching={self.branching}",
            "limit.interval=50ms",
        )


PAPERS = Manner("pushsum", 50, 3)
_SELDOM = Manner("pushsum", 400, 3)
_GOSSIPED = ((50, 1), (100, 1), (200, 1), (200, 3), (400, 3), (800, 3))
_TOLD_MS = (50, 400, 800)
_SPOKEN = ("pushsum", "tree")
"""The checked fabrics; of each, the manner with the least control traffic is checked."""
MANNERS = [
    PAPERS,
    *(Manner("pushsum", *one) for one in _GOSSIPED),
    *(Manner(name, ms, 3) for name in FABRICS if name not in ("mesh", "pushsum")
      for ms in _TOLD_MS),
]  # fmt: skip


def _warmup_s(manner: Manner) -> int:
    rounds = _ROUNDS if manner.fabric == "tree" else 0
    return max(WARMUP_S, math.ceil(rounds * manner.interval_ms / 1000))


def _steady(manner: Manner) -> Series:
    if manner == PAPERS:
        return scale.SERIES[PAPERS_LIMITERS]
    name = f"thrift/{manner.name}"
    warmup_s = _warmup_s(manner)
    return fleet(
        name, PAPERS_LIMITERS, ["fps"], manner.settings, quick=manner == _SELDOM,
        warmup=f"{warmup_s}s", seconds=warmup_s + _SECONDS,
    )  # fmt: skip


def _crowd(manner: Manner) -> Series:
    warmup_s = _warmup_s(manner)
    start = f"{warmup_s + _CROWD_AFTER_S}s"
    flows = [
        {"limiter": f"l{number}", "count": _CROWD_FLOWS, "rtt": "40ms", "start": start}
        for number in range(1, _CROWD_LIMITERS + 1)
    ]
    return fleet(
        f"thrift/crowd-{manner.name}", PAPERS_LIMITERS, ["fps"], manner.settings, flows=flows,
        warmup=f"{warmup_s}s", seconds=warmup_s + _CROWD_SECONDS, quick=manner is PAPERS,
    )  # fmt: skip


STEADY = {manner: _steady(manner) for manner in MANNERS}
CROWD = {manner: _crowd(manner) for manner in MANNERS}


def probed(results: Results, series: str, profile: str) -> float | None:
    """Control traffic of all limiters over the limit, probes included."""
    limiters = len(results.by_series.get(series, {}).get("limiters", ()))
    gossiped = results.control(series, "fps")
    if gossiped is None:
        return None
    bytes_per_s = 2 * _PROBE_BYTES * NS_PER_S / PROFILES[profile].period_ns
    return gossiped + bytes_per_s * 8 * limiters / results.limit_bps(series)


def settled_s(results: Results, series: str) -> float | None:
    """Seconds from the crowd's start until the rate stays below 1.05 of the limit."""
    for run in results.runs(series, "fps"):
        limit_bps = results.limit_bps(series)
        rates = totals(run, _WINDOW_S, run["warmup_s"] + _CROWD_AFTER_S)
        above = [number for number, rate in enumerate(rates, 1) if rate > _SETTLED * limit_bps]
        return (above[-1] if above else 0) * _WINDOW_S
    return None


def evaluate(results: Results) -> Finding:
    """Check the limit and the control traffic of each fabric's cheapest manner."""
    cheapest = {fabric: _cheapest(results, fabric) for fabric in _SPOKEN}
    checks = [
        Check("At the paper's setting control traffic is 22.6 % of the limit",
              results.control(STEADY[PAPERS].name, "fps"), least=0.22, most=0.23),
        *(
            check
            for fabric, manner in cheapest.items()
            for what in [f"{fabric}, the manner with the least control traffic"
                         + ("" if manner is None else f" ({manner.name})")]
            for check in (
                Check(f"{what}: control traffic over the limit, probes ({_THRIFTY}) included",
                      None if manner is None else probed(results, STEADY[manner].name, _THRIFTY),
                      most=_CHEAP),
                Check(f"{what}: aggregate over the limit",
                      None if manner is None else results.used(STEADY[manner].name, "fps"),
                      least=0.95, most=1.05),
                Check(f"{what}: highest 1 s over the limit after the crowd's start",
                      None if manner is None else results.highest(CROWD[manner].name, "fps"),
                      most=_HIGHEST),
            )
        ),
    ]  # fmt: skip
    rows = [
        [manner.fabric, f"{manner.interval_ms} ms", str(manner.branching),
         *texts([results.control(STEADY[manner].name, "fps"),
                 *(probed(results, STEADY[manner].name, profile) for profile in PROFILES)], 4),
         *texts([results.used(STEADY[manner].name, "fps"),
                 results.jain(STEADY[manner].name, "fps"), error(results, STEADY[manner].name),
                 results.highest(CROWD[manner].name, "fps")]),
         text(settled_s(results, CROWD[manner].name), 1)]
        for manner in MANNERS
        if {STEADY[manner].name, CROWD[manner].name} & {*results.by_series}
    ]  # fmt: skip
    return Finding(
        checks,
        f"control traffic of {text(results.control(STEADY[PAPERS].name, 'fps'), 3)} of the limit "
        "with the paper's setting"
        + "".join(_said(results, manner) for manner in cheapest.values() if manner is not None),
        "The paper's 'less than 3 %' mistakes bytes for bits, and the paper has no probes.",
        [Table(f"{PAPERS_LIMITERS} limiters, estimates every 50 ms; a crowd doubles the flows",
               ["fabric", "interval", "branching", "control traffic",
                *(f"with probes ({profile})" for profile in PROFILES), "aggregate", "Jain",
                "error of the total", "crowd: highest 1 s", "seconds above 1.05"], rows)],
    )  # fmt: skip


def _cheapest(results: Results, fabric: str) -> Manner | None:
    """The manner of a fabric with the least control traffic; None if none was measured."""
    costs = {
        manner: cost
        for manner, series in STEADY.items()
        if manner.fabric == fabric and (cost := results.control(series.name, "fps")) is not None
    }
    return min(costs, key=costs.__getitem__, default=None)


def _said(results: Results, manner: Manner) -> str:
    """A manner's cost and aggregate in words."""
    series = STEADY[manner].name
    probes = ", ".join(f"{text(probed(results, series, name), 3)} ({name})" for name in PROFILES)
    return (
        f"; with {manner.name} {text(results.control(series, 'fps'), 3)}, with probes {probes}, "
        f"and {text(results.used(series, 'fps'), 3)} of the limit delivered"
    )


@chart("thrift", 8, 4.2)
def draw(results: Results, axes: Axes) -> bool:
    """The rate after the crowd's start; a line for each manner."""
    shown = [manner for manner in MANNERS if results.runs(CROWD[manner].name, "fps")]
    if not shown:
        return False
    for number, manner in enumerate(shown):
        (run, *_) = results.runs(CROWD[manner].name, "fps")
        limit_bps = results.limit_bps(CROWD[manner].name)
        rates = [rate / limit_bps for rate in totals(run, _WINDOW_S)]
        times = [index * _WINDOW_S - _CROWD_AFTER_S for index in range(len(rates))]
        axes.plot(times, rates, color=COLOURS[number % len(COLOURS)], label=manner.name,
                  linestyle="-" if number < len(COLOURS) else "--")  # fmt: skip
    limit_line(axes, 1)
    axes.set_xlabel("Time since the crowd's start (s)")
    axes.set_ylabel("Delivered, over the limit")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, ncols=2)
    return True


FIGURE = Figure(
    "thrift",
    "Less control traffic at 490 limiters",
    "Control traffic of less than 3 % of the limit (a mistake: it is 22.6 %)",
    [*STEADY.values(), *CROWD.values()],
    evaluate,
    draw,
    page="scale",
)
