"""The measures of one fleet. Pure.

The *error* is that of the total that a limiter believes, over the true total: the sum of the live
limiters' demands. The root mean square and the 95th percentile are over limiters and intervals. The
lowest and the highest show the direction. A limiter that believes too little takes more than its
share of the limit, and one that believes too much takes less.

The *floor* is the error of a fabric that knows everything at once, except deaths, which it knows as
late as the measured fabric. It is the price of safety for any fabric with the same detection time.

*Allotted* is the sum of the limiters' parts of the limit. A limiter's part is its demand over the
total that it believes, times the limit in force. The limit in force lacks the shares of peers that
it does not count, or has not counted for long enough (the conservative rule). The sum should not be
above 1, nor much below the live part of the fleet.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from testbed.fabrics.case import CHURN, DEATH, DEMAND, Case
from testbed.fabrics.fleet import INTERVAL_NS, Fleet, cycle, fleet, settling, start_up
from testbed.sim.network import MS

UPDATE_BYTES = 48
"""Size of an update's IP packet."""
CLOSE = 0.05
"""An error (root mean square) below which a change is known."""
STEADY, STEP, RESTLESS, QUIET = 40, 60, 100, 20
"""Intervals. `STEP` is done twice: the demand rises, and returns."""
DOUBLED = slice(15, 45)
"""Intervals after a step whose error is reported."""
WAITING = 40
"""Additional intervals, beyond the expected ones, until a death or a return is known."""
CHURNING = 400
AWAY_INTERVALS = 60
"""Intervals of a limiter's absence in churn: 3 s."""
YOUNG = 40
"""Intervals after its return for which a limiter may not know the fleet."""
_FEWER = {100: 0.4, 490: 0.25, 1000: 0.1}
"""Part of these intervals for meshes, by size: each interval has N (N - 1) updates."""


@dataclass(slots=True)
class Errors:
    """The errors of consecutive intervals."""

    signed: list[float] = field(default_factory=list)
    lowest: list[float] = field(default_factory=list)
    """The lowest error of each interval."""
    highest: list[float] = field(default_factory=list)
    series: list[float] = field(default_factory=list)
    """The root mean square of each interval."""
    allotted: list[float] = field(default_factory=list)

    def look(self, made: Fleet, names: list[str] | None = None) -> None:
        """Record the present errors of these limiters, or of all live ones."""
        total = made.total
        self.allotted.append(made.allotted)
        found = [believed / total - 1 for believed in made.believed(names).values()]
        if not found:
            return
        self.signed += found
        self.lowest.append(min(found))
        self.highest.append(max(found))
        self.series.append(math.sqrt(statistics.fmean(error * error for error in found)))

    @property
    def document(self) -> dict[str, Any]:
        """The errors as data, for results."""
        sizes = sorted(map(abs, self.signed))
        return {
            "rms": root_mean_square(self.series),
            "p95": _short(sizes[min(int(0.95 * len(sizes)), len(sizes) - 1)]),
            "lowest": _short(min(self.lowest)),
            "highest": _short(max(self.highest)),
            "mean_lowest": _short(statistics.fmean(self.lowest)),
            "mean_highest": _short(statistics.fmean(self.highest)),
            "allotted": {
                "mean": _short(statistics.fmean(self.allotted)),
                "lowest": _short(min(self.allotted)),
                "highest": _short(max(self.allotted)),
            },
        }

    @property
    def close_after(self) -> int | None:
        """Intervals until the error stays below `CLOSE`; None: it does not."""
        return _settled([error < CLOSE for error in self.series])


def root_mean_square(errors: list[float]) -> float:
    """The root mean square of errors, or of root mean squares."""
    return _short(math.sqrt(statistics.fmean(error * error for error in errors)))


def measure(case: Case) -> dict[str, Any]:
    """Measure one fleet, and return its record."""
    made = fleet(case.fabric, case.limiters, case.seed, case.conditions)
    measured = {DEMAND: _demand, DEATH: _death, CHURN: _churn}[case.part]
    return {"case": case.document, **measured(made, case)}


def _started(made: Fleet, case: Case) -> Errors:
    """Run a fleet that starts at once until it knows the total."""
    intervals = start_up(case.fabric, case.limiters) + 20
    intervals += 8 * (case.delay_ms + case.jitter_ms) * MS // INTERVAL_NS
    return _run(made, intervals)


def _run(made: Fleet, intervals: int, before: Callable[[], None] = lambda: None) -> Errors:
    errors = Errors()
    for _ in range(intervals):
        before()
        made.run(1)
        errors.look(made)
    return errors


def _demand(made: Fleet, case: Case) -> dict[str, Any]:
    part = _part(case)
    start = _started(made, case)
    sent = made.network.sent
    steady = _run(made, round(STEADY * part))
    told = (made.network.sent - sent) / case.limiters / round(STEADY * part)
    rng = Random(case.seed)
    stepping = rng.choice(made.names)
    own = made.demand[stepping]
    made.demand[stepping] += made.total
    up = _run(made, round(STEP * part))
    made.demand[stepping] = own
    down = _run(made, round(STEP * part))

    def walk() -> None:
        for name in made.names:
            made.demand[name] *= math.exp(rng.gauss(0, 0.03))

    restless = _run(made, round(RESTLESS * part), walk)
    phases = {"start": start, "steady": steady, "up": up, "down": down, "restless": restless}
    doubled = up.series[DOUBLED] or up.series[-1:]
    return {
        "updates": _short(told),
        "bytes_s": round(told * UPDATE_BYTES * 1e9 / INTERVAL_NS),
        "start": {"close_after": start.close_after},
        "steady": steady.document,
        "restless": restless.document,
        "up": up.document | {"close_after": up.close_after, "doubled": root_mean_square(doubled)},
        "down": down.document | {"close_after": down.close_after},
        **_series(case, phases),
    }


def _death(made: Fleet, case: Case) -> dict[str, Any]:
    """The busiest limiter, with half of the demand, dies and returns."""
    _started(made, case)
    victim = _busiest(made)
    made.demand[victim] = sum(made.demand[name] for name in made.names if name != victim)
    _run(made, QUIET + start_up(case.fabric, case.limiters))
    made.dead.add(victim)
    more = round(WAITING * _part(case))
    wait = 24 * cycle(case.fabric, case.limiters) + 3 * settling(case.fabric, case.limiters) + more
    death = _until_counted(made, wait, case.limiters - 2)
    made.restart(victim)
    made.dead.clear()
    known = 3 * cycle(case.fabric, case.limiters) + 3 * settling(case.fabric, case.limiters)
    back = _until_counted(made, known + more, case.limiters - 1)
    return {
        **{
            phase: errors.document
            | {"close_after": errors.close_after, "counted_after": _settled(counted)}
            for phase, (errors, counted) in (("death", death), ("return", back))
        },
        **_series(case, {"death": death[0], "return": back[0]}),
    }


def _until_counted(made: Fleet, intervals: int, peers: int) -> tuple[Errors, list[bool]]:
    """Run a fleet; in each interval, whether all live limiters count this number of peers."""
    errors, counted = Errors(), []
    for _ in range(intervals):
        made.run(1)
        errors.look(made)
        counted.append(made.connected() == {peers})
    return errors, counted


def _busiest(made: Fleet) -> str:
    """The limiter with the most targets in a round: in a tree, with the most children."""
    rng = Random(1)
    targets = {name: len(made.fabrics[name].membership.targets(rng)) for name in made.names}
    return max(made.names, key=lambda name: (targets[name], name))


def _churn(made: Fleet, case: Case) -> dict[str, Any]:
    """A random limiter dies every `Case.every` intervals, and returns after `AWAY_INTERVALS`.

    A limiter's errors count from `YOUNG` intervals after its return.
    """
    _started(made, case)
    rng = Random(case.seed)
    returns: dict[str, int] = {}
    born = dict.fromkeys(made.names, -YOUNG)
    died: dict[str, int] = {}
    errors = Errors()
    floor: list[float] = []
    for interval in range(round(CHURNING * _part(case))):
        if interval % case.every == 0 and len(made.alive) > 2:
            victim = rng.choice(made.alive)
            made.dead.add(victim)
            died[victim] = interval
            returns[victim] = interval + AWAY_INTERVALS
        for name in [name for name, due in returns.items() if due == interval]:
            del returns[name]
            made.dead.discard(name)
            made.restart(name)
            born[name] = interval
        made.run(1)
        errors.look(made, [name for name in made.alive if interval - born[name] >= YOUNG])
        still = [name for name in made.dead if interval - died[name] < made.counted_intervals]
        floor.append(sum(made.demand[name] for name in still) / made.total)
    return {
        "churn": errors.document | {"floor": root_mean_square(floor)},
        **_series(case, {"churn": errors}),
    }


def _part(case: Case) -> float:
    return _FEWER.get(case.limiters, 1.0) if case.fabric == "mesh" else 1.0


def _settled(happened: list[bool]) -> int | None:
    """Intervals until something stays true; None: it does not."""
    false = [number for number, so in enumerate(happened, 1) if not so]
    last = false[-1] if false else 0
    return None if last == len(happened) else last + 1


def _series(case: Case, phases: dict[str, Errors]) -> dict[str, Any]:
    """The errors over time, with the first seed."""
    if case.seed != 1:
        return {}
    return {"series": {name: list(map(_short, found.series)) for name, found in phases.items()}}


def _short(number: float) -> float:
    """Round to four digits, for a small file."""
    return float(f"{number:.4g}")
