"""Results of whole figures that were never run: as each figure wants them, but for what is said."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.harness.results import Results
from testbed.reproduce import fig8, sensitivity
from testbed.reproduce.baseline import FPS
from testbed.result import GOODPUT_SHARE
from tests.reproduce_factories import Rate, a_result, a_run, constant


def swinging(mbit: float, by: float, period_s: float = 0.5) -> Rate:
    return lambda time_s: mbit + by * math.sin(2 * math.pi * time_s / period_s)


def steps(*values: tuple[float, float]) -> Rate:
    """(from when, Mbit/s)."""
    return lambda time_s: next(mbit for since, mbit in reversed(values) if time_s >= since)


def changing(before: float, between: float, after: float) -> Rate:
    """Rates of figure 7: until 15 s, until 31 s, and then."""
    return steps((0, before), (15, between), (31, after))


def split(*mbit: float) -> dict[str, Rate]:
    """Constant rates of l1, l2, ..."""
    return {f"l{number}": constant(rate) for number, rate in enumerate(mbit, 1)}


SPLIT = {"l1": swinging(3, 0.3), "l2": swinging(7, 0.7)}
BURSTY = {"l1": swinging(3, 1), "l2": swinging(7, 3)}
UNFAIR = {"l1": constant(0.5), "l2": swinging(9.5, 3)}
JAIN = {
    "ctb": 0.97, "gtb": 0.7, "grd": 0.995, "fps": 0.975, "fps-paper": 0.975, "fair": 0.997,
    "crd": 0.996,
}  # fmt: skip


def baseline(
    limiters: Mapping[str, Mapping[str, Rate]] | None = None,
    jain: Mapping[str, float] | None = None,
    hasty: Mapping[str, Rate] = SPLIT,
) -> Results:
    """The baseline's runs as the paper has them, two of each, but for what is said.

    `hasty` is GRD's rate under the other reading of the paper's EWMA parameter.
    """
    rates = {"gtb": UNFAIR, "grd": BURSTY, **(limiters or {})}
    index = {**JAIN, **(jain or {})}
    runs = [
        a_run(name, number, limiters=rates.get(name, SPLIT), jain=index[name] + number / 10_000)
        for number in (2, 1)
        for name in index
    ]
    other = a_result(a_run("grd", limiters=hasty))
    return Results({"baseline": a_result(*runs), "baseline-hasty": other})


DEFINITION = {
    "events": [{"at": "15s", "flows": "seven"}],
    "flows": [{"limiter": "l1"}, {"limiter": "l2"}, {"limiter": "l2", "start": "31s"}],
}


def bottleneck(**changes: Rate) -> Results:
    rates: dict[str, Rate] = {
        "l1": steps((0, 3), (16, 8), (32, 6)),
        "l2": steps((0, 7), (16, 2), (32, 4)),
        "late": constant(2),
        **changes,
    }
    flows = [{"limiter": "l2", "rate": rates.pop("late"), "start_s": 31.002}]
    runs = [
        a_run(name, limiters=rates, flows=flows, seconds=60.0, warmup_s=2.0)
        for name in ("fps", "fps-paper", "fair", "ctb")
    ]
    return Results({"bottleneck": a_result(*runs, definition=DEFINITION)})


LIMITERS = [f"l{number}" for number in range(1, 6)]
STEP_S = 10.0


@functools.cache
def alive(time_s: float) -> list[int]:
    """Which of the five live: they join every 10 s from 5 s on, and leave in the same order."""
    return [
        number for number in range(5)
        if 5 + number * STEP_S <= time_s < 5 + (number + 5) * STEP_S
    ]  # fmt: skip


def sharing(swing: float, period_s: float, unfair: float = 0.0, used: float = 1.0) -> list[Rate]:
    """Fair shares, which swing by a part of them.

    Where an even number of flows live, every other one gets more by `unfair`, of its share.
    """

    def of(number: int) -> Rate:
        def rate(time_s: float) -> float:
            if number not in alive(time_s):
                return 0.0
            others = len(alive(time_s))
            share = 1 if others % 2 else 1 + unfair * (-1) ** number
            swung = 1 + swing * math.sin(2 * math.pi * time_s / period_s)
            return used * 10.0 / others * share * swung

        return rate

    return [of(number) for number in range(5)]


def dynamic_run(allocator: str, rates: Sequence[Rate]) -> dict[str, Any]:
    def payload(rate: Rate) -> Rate:
        return lambda time_s: rate(time_s) * GOODPUT_SHARE

    flows = [
        {"limiter": limiter, "rate": payload(rate), "start_s": 5 + number * STEP_S + 0.01,
         "end_s": 5 + (number + 5) * STEP_S}
        for number, (limiter, rate) in enumerate(zip(LIMITERS, rates, strict=True))
    ]  # fmt: skip
    limiters = dict(zip(LIMITERS, rates, strict=True))
    return a_run(allocator, limiters=limiters, flows=flows, seconds=95.0, warmup_s=5.0)


STEADY_FLOWS = sharing(0.02, 4.0)
CHAOTIC = sharing(0.9, 4.0)


def dynamics(**changes: Sequence[Rate]) -> Results:
    rates: dict[str, Sequence[Rate]] = {
        "ctb": sharing(0.12, 4.0, unfair=0.3),
        "grd": sharing(0.1, 4.0),
        "slow": CHAOTIC,
        "fps": STEADY_FLOWS,
        "printed": STEADY_FLOWS,
        "fair": STEADY_FLOWS,
        "deep": STEADY_FLOWS,
        **changes,
    }
    fast = a_result(dynamic_run("ctb", rates["ctb"]), dynamic_run("grd", rates["grd"]))
    slow = a_result(
        dynamic_run("grd", rates["slow"]), dynamic_run("fps", rates["fps"]),
        dynamic_run("fps-paper", rates["printed"]), dynamic_run("fair", rates["fair"]),
    )  # fmt: skip
    deep = a_result(*(dynamic_run(name, rates["deep"]) for name in FPS))
    return Results({"dynamics-50ms": fast, "dynamics-500ms": slow, "dynamics-deep-fps": deep})


def round_trips(**changes: tuple[float, float]) -> Results:
    """(long, short) Mbit/s a flow by allocator."""
    rates = {
        "ctb": (0.1, 1.41), "grd": (0.16, 1.37), "fps": (0.8, 1.1), "fps-paper": (0.8, 1.1),
        "fair": (0.8, 1.1), **changes,
    }  # fmt: skip
    runs = []
    for name, (long, short) in rates.items():
        flows = [{"limiter": "l1", "rate": constant(long)}] * 3
        flows += [{"limiter": "l2", "rate": constant(short)}] * 7
        limiters = {"l1": constant(3 * long), "l2": constant(7 * short)}
        runs += [a_run(name, number, limiters=limiters, flows=flows) for number in (1, 2)]
    return Results({"rtt-mix": a_result(*runs)})


def many(**changes: tuple[float, float] | tuple[float, float, float]) -> Results:
    """(Mbit/s, Jain) by allocator, and the share of the 1,500 flows where it is not 0.3."""
    found: dict[str, tuple[float, ...]] = {
        "ctb": (50.0, 0.34), "grd": (52.0, 0.44), "fps": (47.0, 0.33),
        "fps-paper": (47.0, 0.33), "fair": (47.0, 0.33), **changes,
    }  # fmt: skip
    flows = [{"limiter": "l1", "rate": constant(rate)} for rate in (0.0, 0.01, 0.02)]
    runs = [
        a_run(name, limiters={"l1": constant(share * rate), "l2": constant((1 - share) * rate)},
              flows=flows, jain=jain)
        for name, (rate, jain, share, *_) in ((name, (*one, 0.3)) for name, one in found.items())
    ]  # fmt: skip
    return Results({"many-flows": a_result(*runs, limit_bps=50e6)})


def cells(
    jain: Mapping[tuple[str, tuple[int, float]], float] | None = None,
    rates: Mapping[tuple[str, tuple[int, float]], dict[str, Rate]] | None = None,
) -> Results:
    """The grid as the paper has it, but for what is said of an allocator's cell."""
    usual = {"gtb": 0.7, "grd": 0.99, **dict.fromkeys(FPS, 0.97)}
    index = {("gtb", (10, 0)): 0.95, **(jain or {})}
    how = {("grd", (500, 0.1)): {"l1": swinging(10, 9, 4.0)}, **(rates or {})}
    found = {
        series.name: a_result(
            *(
                a_run(name, limiters=how.get((name, cell), {"l1": constant(10)}),
                      jain=index.get((name, cell), value), seconds=4.0)
                for name, value in usual.items()
            )
        )
        for cell, series in sensitivity.GRID.items()
    }  # fmt: skip
    long = a_run("gtb", limiters={"l1": constant(10)}, jain=0.9)
    found[sensitivity.LONG_RTT.name] = a_result(long)
    for cell, spot in sensitivity.SPOTS.items():
        own = [run for run in found[sensitivity.GRID[cell].name]["runs"] if
               run["allocator"] in spot.load(False).table.allocators]  # fmt: skip
        found[spot.name] = a_result(*own)
    return Results(found)


def scale(
    used: Mapping[tuple[str, int | str], float] | None = None,
    jain: Mapping[tuple[str, int, int], float] | None = None,
) -> Results:
    """Every size and branching: (allocator, limiters) over the limit, and Jain with branching."""
    share = {"ctb": 1.0, "grd": 0.99, "fps": 0.99}
    found = {}
    for (limiters, branching), series in fig8.SERIES.items():
        runs = [
            a_run(name, limiters={"fleet": constant(
                      50 * (used or {}).get((name, limiters), share[name]))},
                  jain=(jain or {}).get((name, limiters, branching), 0.9), seconds=2.0,
                  gossip={"bytes_per_limiter_per_s": 960.0 * branching})
            for name in series.load(False).table.allocators
        ]  # fmt: skip
        found[series.name] = a_result(*runs, limit_bps=50e6, limiters=["l"] * limiters)
    rarely = a_run("fps", limiters={"fleet": constant(50 * (used or {}).get(("fps", 0), 1.0))},
                   gossip={"bytes_per_limiter_per_s": 360.0}, seconds=2.0)  # fmt: skip
    found[fig8.RARELY.name] = a_result(rarely, limit_bps=50e6, limiters=["l"] * 490)
    others = [(("fps", f"loss {loss:g}"), 1.0, series) for loss, series in fig8.LOSSY.items()]
    for limiters, series in fig8.HASTY.items():
        others += [(("grd", f"hasty {limiters}"), 1.2, series)]
        others += [(("fps", f"hasty {limiters}"), 1.0, series)]
    for key, usually, series in others:
        run = a_run(key[0], seconds=2.0,
                    limiters={"fleet": constant(50 * (used or {}).get(key, usually))})  # fmt: skip
        result = found.setdefault(series.name, a_result(run, limit_bps=50e6))
        result["runs"] = [*(one for one in result["runs"] if one is not run), run]
    return Results(found)


WEB = {"ctb": 1.80, "grd": 1.97, "fps": 2.09, "fps-paper": 2.09, "fair": 2.09}
BULK = {"ctb": 6.90, "grd": 7.25, "fps": 6.98, "fps-paper": 6.98, "fair": 6.98}
REST = constant(2.5)
WEB_JAIN = {"ctb": 0.971, "grd": 0.997, "fps": 0.962, "fps-paper": 0.962, "fair": 0.99}
RATES = {
    "ctb": (28.0, 276.0, 472.0, 695.0),
    "grd": (26.0, 343.0, 612.0, 752.0),
    "fps": (26.0, 336.0, 571.0, 765.0),
    "fps-paper": (26.0, 336.0, 571.0, 765.0),
    "fair": (26.0, 336.0, 571.0, 765.0),
}
"""Kbit/s of the four sizes of objects, as the paper has them."""


def web(mbit: float, sizes: tuple[int, ...], rates: tuple[float | None, ...]) -> dict[str, Any]:
    classes = [
        {"from": least, "finished": 2 if rate else 0, "unfinished": 1,
         "rate_bps": rate and rate * 1000}
        for least, rate in zip((0, 5_000, 50_000, 500_000), rates, strict=True)
    ]  # fmt: skip
    return {
        "goodput_bps": mbit * 1e6,
        "classes": classes,
        "sites": [],
        "requests": [[0, 0.1, size, size, 0.2] for size in sizes],
    }


def table_1(
    *,
    webs: Mapping[str, float] | None = None,
    bulk: Mapping[str, float] | None = None,
    jain: Mapping[str, float] | None = None,
    rate: Rate = REST,
    other: tuple[int, ...] = (2000, 7000),
    rates: Mapping[str, tuple[float | None, ...]] | None = None,
) -> Results:
    """Two runs of each allocator as the paper has them, but for what is said.

    `other` are the sizes that `fair` was asked for.
    """
    goodput, bulks, index = (
        {**WEB, **(webs or {})},
        {**BULK, **(bulk or {})},
        {**WEB_JAIN, **(jain or {})},
    )
    runs = [
        a_run(
            name, number,
            limiters={"l1": constant(7.5), "l2": rate},
            jain=index[name],
            bulk_goodput_bps=bulks[name] * 1e6,
            web=web(goodput[name], other if name == "fair" else (2000, 7000),
                    {**RATES, **(rates or {})}[name]),
        )
        for number in (1, 2)
        for name in WEB
    ]  # fmt: skip
    return Results({"table1": a_result(*runs)})


DEMAND = [
    {"at": "10s", "web": ["w1"], "concurrent": 6},
    {"at": "10s", "web": ["w2"], "concurrent": 0},
    {"at": "20s", "web": ["w1", "w2"], "concurrent": 3},
]
TWO = constant(2.0)


def figure_9(
    demand: list[dict[str, Any]] = DEMAND,
    *,
    static: Rate = TWO,
    fps: Rate | None = None,
    fair: Rate | None = None,
) -> Results:
    """5 Mbit/s for two limiters, 30 s in three phases."""

    def idle(time_s: float) -> float:
        return 0.0 if 10 <= time_s < 20 else 2.5

    runs = [
        a_run(name, 1, limiters={"l1": rate, "l2": idle}, seconds=30.0, jain=None)
        for name, rate in (
            ("static", static),
            ("fps", fps or following),
            ("fps-paper", following),
            ("fair", fair or following),
        )
    ]
    definition = {"seconds": 30, "warmup": "2s", "demand": demand}
    return Results({"fig9": a_result(*runs, limit_bps=5e6, definition=definition)})


def following(time_s: float) -> float:
    return 5.0 if 10 <= time_s < 20 else 2.5
