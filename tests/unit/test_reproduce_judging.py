"""Every figure's checks from both sides, on results that were made up, and that its plot draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from testbed.harness.figure import Figure
from testbed.harness.results import Results
from testbed.reproduce import (
    fig3,
    fig4,
    fig5,
    fig6,
    fig7,
    fig8,
    fig9,
    flows5000,
    sensitivity,
    table1,
    table2,
)
from testbed.reproduce.baseline import NAMES
from testbed.studies import daemons, fabrics, responsiveness, scale, thrift, trust
from tests import reproduce_results as made
from tests import study_results
from tests.reproduce_factories import Rate, constant, draws, failed
from tests.reproduce_results import (
    BURSTY,
    SPLIT,
    changing,
    following,
    sharing,
    split,
    steps,
    swinging,
)
from tests.study_results import an_event

FLEET40, FLEET100 = daemons.FIGURES
swung = partial(swinging, period_s=4.0)
LONE = "any-traffic/lone-cubic-40ms-testbed"

HELD: list[tuple[Figure, Callable[..., Results]]] = [
    *((figure, made.baseline) for figure in (fig3.FIGURE, fig4.FIGURE, fig5.FIGURE)),
    (fig6.FIGURE, made.dynamics),
    (fig7.FIGURE, made.bottleneck),
    (fig8.FIGURE, made.scale),
    (fig9.FIGURE, made.figure_9),
    (table1.FIGURE, made.table_1),
    (table2.FIGURE, made.round_trips),
    (flows5000.FIGURE, made.many),
    (sensitivity.FIGURE, made.cells),
    (trust.FIGURE, study_results.both),
    (FLEET40, study_results.fleets),
    (responsiveness.FIGURE, study_results.responses),
    *(
        (figure, partial(study_results.fleet_figure, figure, sent=study_results.PAPERS))
        for figure in (scale.FIGURE, fabrics.FIGURE, thrift.FIGURE)
    ),
]
BUILDERS = {figure.name: build for figure, build in HELD}


@pytest.mark.parametrize(("figure", "build"), HELD, ids=lambda it: getattr(it, "name", ""))
def test_results_like_the_papers_hold_and_are_drawn(
    figure: Figure, build: Callable[..., Results], tmp_path: Path
) -> None:
    results = build()
    assert failed(figure, results) == []
    draws(figure, results, tmp_path)


def after(high: float, begin_s: float, end_s: float) -> Rate:
    """Figure 9's rate, and more for a while."""
    return lambda time_s: following(time_s) + (high if begin_s <= time_s < end_s else 0.0)


Change = tuple[Any, ...]
"""A change to results that hold, and the beginnings of the statements that then fail."""

MISSED: list[tuple[Figure, list[Change]]] = [
    (fig3.FIGURE, [
        ({"limiters": {"fps": split(3.1, 7.3)}}, "FPS: aggregate"),
        ({"limiters": {"fps-paper": split(3.6, 6.4)}}, "FPS as printed: share"),
        ({"limiters": {"fair": split(3.6, 6.4)}}, "fair: share"),
        ({"limiters": {"fair": split(3.06, 7.14)}}, "fair, more strictly"),
        ({"limiters": {"fair": split(2.92, 6.83)}}, "fair, more strictly"),
        ({"limiters": {"ctb": split(2.8, 6.6)}}, "CTB: aggregate"),
        ({"limiters": {"grd": split(3.6, 6.4)}}, "GRD: share"),
        ({"limiters": {"gtb": split(2, 8)}}, "GTB: share"),
    ]),
    (fig4.FIGURE, [
        ({"limiters": {"grd": SPLIT}}, "GRD is bursty over 0.1 s"),
        ({"limiters": {"fps": BURSTY}}, "FPS matches CTB over 0.1 s"),
        ({"limiters": {"fps-paper": BURSTY}}, "FPS as printed matches CTB over 0.1 s"),
        ({"limiters": {"fps": {"l1": swung(10, 4)}}},
         "FPS delivers the limit", "FPS matches CTB over 1 s", "FPS matches CTB over 0.1 s"),
        # One window of 18 is too high.
        ({"limiters": {"fair": {"l1": steps((0, 10), (9, 11.2), (10, 10))}}},
         "fair, more strictly"),
        ({"hasty": {"l1": swung(10, 4)}}, "GRD with an EWMA of 0.1 an interval: 1 s windows"),
        ({"hasty": {"l1": constant(9.3)}}, "GRD with an EWMA of 0.1 an interval: aggregate"),
    ]),
    (fig5.FIGURE, [
        ({"jain": {"gtb": 0.9}}, "GTB: Jain's index about 0.7"),
        ({"jain": {"fps": 0.95}}, "FPS at or above CTB: difference", "FPS at or above CTB: least"),
        ({"jain": {"fps-paper": 0.95}},
         "FPS as printed at or above CTB: difference", "FPS as printed at or above CTB: least"),
        ({"jain": {"crd": 0.95}}, "Central random drop"),
        ({"jain": {"fair": 0.99}}, "fair, more strictly"),
        ({"jain": {"fair": 0.95}}, "fair at or above", "fair at or above", "fair, more strictly"),
        ({"jain": {"grd": 0.98}}, "GRD: Jain's index", "Central random drop"),
    ]),
    (fig6.FIGURE, [
        ({"slow": sharing(0.1, 4.0)}, *["GRD with 500 ms is chaotic"] * 2),
        ({"grd": sharing(0.4, 4.0)}, "GRD with 50 ms follows CTB"),
        ({"grd": sharing(0.1, 4.0, unfair=0.4)}, "GRD with 50 ms is fairer"),
        ({"fps": sharing(0.11, 4.0)}, "FPS with 500 ms is the steadiest"),
        ({"fps": sharing(0.02, 4.0, unfair=0.3)}, "FPS with 500 ms: distance"),
        ({"fps": sharing(0.02, 4.0, used=0.95)}, *["FPS with 500 ms: aggregate"] * 2),
        ({"fps": sharing(0.02, 4.0, used=0.96), "ctb": sharing(0.12, 4.0, unfair=0.3, used=0.96)},
         "FPS with 500 ms: aggregate over the limit"),
        ({"printed": sharing(0.11, 4.0)}, "FPS as printed with 500 ms is the steadiest"),
        ({"printed": sharing(0.02, 4.0, unfair=0.3)}, "FPS as printed with 500 ms: distance"),
        ({"fair": sharing(0.11, 4.0)}, "fair with 500 ms is the steadiest"),
        ({"deep": sharing(0.02, 4.0, used=0.95)},
         *(f"{name} with 500 ms and the depth" for name in ("FPS", "FPS as printed", "fair"))),
        ({"fps": sharing(0.02, 4.0, used=1.2)}, "FPS with 500 ms: 1 s windows",
         "FPS with 500 ms: distance", "FPS with 500 ms: aggregate"),
    ]),
    (fig8.FIGURE, [
        ({"used": {("fps", 350): 1.1}}, "350 limiters: FPS with branching 3, aggregate"),
        ({"used": {("fps", 10): 0.9}}, "10 limiters: FPS with branching 3, aggregate"),
        ({"jain": {("fps", 100, 3): 0.8}}, "100 limiters: FPS with branching 3, Jain's index"),
        ({"used": {("grd", "hasty 490"): 1.04}},
         "490 limiters, EWMA of 0.1 an interval: GRD fails"),
        ({"used": {("fps", "hasty 100"): 1.06}}, "100 limiters, EWMA of 0.1 an interval: FPS"),
        ({"used": {("fps", "loss 0.05"): 1.06}}, "490 limiters, 5.0% of the updates lost: FPS"),
        ({"jain": {("fps", 490, 7): 0.98}}, "Beyond branching 3"),
        ({"used": {("fps", 0): 1.06}}, "490 limiters that gossip every 400 ms: FPS"),
    ]),
    (fig9.FIGURE, [
        ({"static": constant(2.5)}, "Static 1/N cannot use"),
        ({"fps": steps((0, 2.5), (10, 5.2), (20, 2.6))},),
        ({"fps": steps((0, 2.5), (10, 4.5), (20, 2.9))},
         "FPS delivers the limit while four", "FPS delivers the limit while all ten again"),
        ({"fps": constant(2.5)},
         "FPS: aggregate over the limit", "FPS delivers the limit while four"),
        ({"fps": lambda time_s: following(time_s) + (0.6 if time_s % 10 < 2 else -0.1)},
         "FPS bursts above the limit only occasionally"),
        ({"fps": after(0.8, 12, 13)}, "FPS: highest 1 s window"),
        ({"fair": lambda time_s: following(time_s) * 1.3},
         "fair: aggregate over the limit",
         "fair delivers the limit while all ten have requests",
         "fair delivers the limit while four have requests",
         "fair delivers the limit while all ten again have requests",
         "fair bursts above the limit only occasionally: 1 s windows of at most 1.10 of it",
         "fair: highest 1 s window over the limit"),
    ]),
    (table1.FIGURE, [
        ({"webs": {"fps": 1.79}}, "FPS: web goodput over CTB's"),
        ({"bulk": {"fps": 6.7}}, "FPS: bulk goodput over CTB's"),
        ({"jain": {"fps": 0.96}}, "FPS: Jain's index of the bulk flows less CTB's"),
        ({"jain": {"grd": 0.96}}, "GRD: Jain's index of the bulk flows less CTB's"),
        ({"bulk": {"fair": 6.7}}, "fair: bulk goodput over CTB's"),
        ({"bulk": {"fps-paper": 6.7}}, "FPS as printed: bulk goodput over CTB's"),
        ({"rates": {"fair": (26.0, 336.0, 571.0, 650.0)}},
         "fair: rate of objects of [500000, ∞) bytes over CTB's (the paper's FPS: 1.10)"),
        ({"rates": {"fps": (31.0, 336.0, 571.0, 765.0)}},
         "FPS: rate of objects of [0, 5000) bytes over CTB's (paper: 0.91)"),
        ({"rates": {"fps": (26.0, 336.0, 571.0, 650.0)}},
         "FPS: rate of objects of [500000, ∞) bytes over CTB's (paper: 1.10)"),
        ({"rates": {"fps-paper": (26.0, 280.0, 571.0, 765.0)}},
         "FPS as printed: rate of objects of [5000, 50000) bytes over CTB's (paper: 1.22)"),
        ({"rates": {"grd": (26.0, 343.0, 500.0, 752.0)}},
         "GRD: rate of objects of [50000, 500000) bytes over CTB's (paper: 1.30)"),
        ({"other": (2000, 7001)}, "Repetitions in which all were asked for the same objects"),
        ({"rate": constant(2.1)}, "FPS: aggregate over the limit",
         "FPS as printed: aggregate over the limit", "fair: aggregate over the limit"),
    ]),
    (table2.FIGURE, [
        ({"fps": (0.76, 1.0)}, "FPS: aggregate", "FPS delivers CTB's"),
        ({"grd": (0.2, 1.2)}, "GRD delivers CTB's"),
        ({"fps": (0.5, 1.22)}, "FPS is no less fair"),
        ({"fps": (0.99, 1.0)}, "FPS: goodput of a long flow (paper: 0.57)"),
        ({"fps": (0.3, 1.3)}, "FPS: goodput of a long flow (paper: 0.57)", "FPS is no"),
        ({"fps-paper": (1.4, 0.83)}, "FPS as printed: goodput of a long flow (paper: 0.57)",
         "FPS as printed is no less"),
        ({"fair": (1.4, 0.83)}, "fair: goodput of a long flow (paper: 0.57)", "fair is no less"),
        ({"grd": (0.05, 1.42)}, "GRD: goodput of a long flow (paper: 0.16)", "GRD: long flows'"),
        ({"grd": (0.25, 1.33)}, "GRD: goodput of a long flow (paper: 0.16)"),
        ({"ctb": (0.16, 1.38), "grd": (0.17, 1.37)}, "CTB: goodput of a long flow (paper: 0.10)"),
        ({"ctb": (0.35, 1.3), "grd": (0.36, 1.29)}, "CTB: goodput of a long flow",
         "GRD: goodput of a long flow", "CTB: short flows"),
    ]),
    (flows5000.FIGURE, [
        ({"fps": (44.0, 0.33)}, "FPS: aggregate"),
        ({"fps": (47.0, 0.22)}, "FPS: Jain's index", "FPS is about as fair"),
        ({"ctb": (50.0, 0.45)}, "CTB: Jain's index"),
        ({"grd": (52.0, 0.48)}, "GRD is about as fair"),
        ({"grd": (52.0, 0.56)}, "GRD: Jain's index", "GRD is about as fair"),
        ({"fps": (47.0, 0.33, 0.5)}, "FPS: share"),
        ({"fps": (47.0, 0.33, 0.26)}, "FPS: share"),
        ({"fair": (47.0, 0.33, 0.26)}, "fair: share"),
    ]),
    (sensitivity.FIGURE, [
        ({"jain": {("gtb", (ms, 0.5)): 0.95 for ms in (20, 50, 100, 200, 500)}
          | {("gtb", (20, 0)): 0.95}}, "GTB is unfair almost everywhere else"),
        ({"jain": {("gtb", (50, 0)): 0.89}}, "GTB is fairer with longer round trips"),
        ({"jain": {("grd", (500, 0.1)): 0.9}}, "GRD stays fair"),
        ({"rates": {("grd", (500, 0.1)): {"l1": swung(10, 1)}}}, "GRD loses short-term"),
        ({"jain": {("fair", (200, 0.1)): 0.9}}, "fair is insensitive to the interval: range"),
        ({"jain": {("fps", (200, 0.1)): 0.9}}, "FPS is insensitive to the interval: range"),
        ({"rates": {("fps", (200, 0.1)): {"l1": swung(9, 1)}}},
         "FPS is insensitive to the interval: the"),
    ]),
    (trust.FIGURE, [
        ({"simulated": {"baseline": split(3.15, 7.35)}}, "baseline: aggregate"),
        ({"simulated": {"join": split(3.4, 6.6)}}, "a flow joins: share"),
        ({"jain": {"join": 0.9}}, "a flow joins: Jain's index"),
        # Only one of the phases.
        ({"simulated": {"bottleneck": {"l1": changing(3, 8, 5), "l2": changing(7, 2, 5)}}},
         "figure 7: share"),
        ({"simulated": {"bottleneck": {"l1": changing(3, 7.5, 6), "l2": changing(7, 2, 4)}}},
         "figure 7: aggregate"),
        ({"odd": {"any-traffic/udp-3-testbed": 1.4}},
         "UDP of 3 Mbit/s beside TCP: part of the limit"),
        ({"odd": {"any-traffic/bbr-testbed": 0.6}},
         "BBR beside New Reno and CUBIC: part of the limit"),
        ({"simulated": {LONE: split(3.15, 7.35)}},
         "a lone CUBIC flow, no path delay, burst 40 ms: aggregate"),
        # Of a lone flow share and Jain's index say nothing.
        ({"simulated": {LONE: split(4, 6)}, "jain": {LONE: 0.5}},),
    ]),
    (FLEET40, [
        ({"used": 0.96}, "FPS: aggregate over the limit", "FPS: aggregate over the limit, testb"),
        ({"used": 1.035}, *["FPS: aggregate over the limit"] * 2),
        ({"jain": 0.90}, "FPS: Jain's index"),
        ({"believed": 0.08}, "FPS: error of the believed total"),
        ({"limiters": 39}, "Limiters"),
    ]),
    (scale.FIGURE, [
        ({"used": {("scale/3000", "fps"): 1.06}}, "3,000 limiters: FPS with branching 3"),
        ({"used": {("scale/490", "fps"): 0.94}}, "490 limiters: FPS with branching 3"),
        ({"jain": {("scale/10000", "fps"): 0.7}}, "10,000 limiters: FPS with branching 3, Jain"),
    ]),
    (fabrics.FIGURE, [
        ({"used": {("fabrics/pushsum-490-loss-0.2", "fps"): 2.0}},
         "pushsum, 490 limiters, 20.0% of the updates lost"),
    ]),
    (responsiveness.FIGURE, [
        ({"changed": {event["kind"]: [event]}, "allocator": allocator}, NAMES[allocator] + said)
        for allocator in ("fps", "fair")
        for event, said in (
            (an_event("join", 0.2, 1.2, 1.4), ", a flow joins"),
            (an_event("leave", 0.2, 1.2, 1.4), ", a flow leaves"),
            (an_event("bottleneck", 5.2), ", others are bottlenecked"),
            (an_event("limit", 1.2), ", the limit grows"),
            (an_event("death", 3.6), ", a limiter dies"),
            (an_event("limit", 0.2, highest_1s_bps=11.6e6),
             ": highest 1 s window over the limit, from 1 s after each event"),
            (an_event("join", 0.2, first_1s_bps=11.6e6),
             ": highest 1 s window over the limit, begun within 1 s after an event"),
            (an_event("join", *[0.2] * 15, None), ": part of the flows that never"),
        )
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "change"),
    [
        pytest.param(figure, change, id=f"{figure.name}-{number}")
        for figure, changes in MISSED
        for number, change in enumerate(changes)
    ],
)
def test_each_deviation_fails_its_own_check(figure: Figure, change: Change) -> None:
    changes, *statements = change
    found = failed(figure, BUILDERS[figure.name](**changes))
    assert len(found) == len(statements), found
    assert all(one.startswith(start) for one, start in zip(found, statements, strict=True)), found
