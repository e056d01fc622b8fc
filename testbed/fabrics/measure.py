"""What is measured of one fleet. Pure.

Errors are those of the total that a limiter believes in, as a part of the true one: the sum of what
all that live want. Their root mean square and 95th percentile are over limiters and intervals. The
lowest and the highest say which way: who believes in too little takes more than its share of
the limit, who believes in too much takes less.

The *floor* of an error is what is left of it if all is known at once but deaths, and those as late
as the fabric forgets the dead: what it costs to be safe, in any fabric that takes as long.

*Allotted* is what they take together, as a part of the limit: each the part that its own demand is
of the total it believes in, of the limit less the shares of those that it counts out, or has not
counted for long enough (the conservative rule). It should not be above 1, nor much below the part
of the fleet that lives.
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
"""Of the IP packet."""
CLOSE = 0.05
"""An error (root mean square) below which a change is known."""
STEADY, STEP, RESTLESS, QUIET = 40, 60, 100, 20
"""Intervals; `STEP` twice, as the demand returns to what it was."""
DOUBLED = slice(15, 45)
"""Intervals after a step of which the error is told."""
WAITING = 40
"""Intervals for which one waits longer than it should take until a death or a return is known."""
CHURNING = 400
AWAY_INTERVALS = 60
"""For how long a limiter is dead that comes and goes: 3 s."""
YOUNG = 40
"""Intervals for which a limiter that has come back may not know the fleet yet."""
_FEWER = {100: 0.4, 490: 0.25, 1000: 0.1}
"""Part of all these intervals, of meshes: each is N (N - 1) updates, and all of them alike."""


@dataclass(slots=True)
class Errors:
    """Errors as they come."""

    signed: list[float] = field(default_factory=list)
    lowest: list[float] = field(default_factory=list)
    """Of each interval."""
    highest: list[float] = field(default_factory=list)
    series: list[float] = field(default_factory=list)
    """Root mean square of each interval."""
    allotted: list[float] = field(default_factory=list)

    def look(self, made: Fleet, names: list[str] | None = None) -> None:
        """Take in what these limiters, or all that live, believe now."""
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
        """As it stands in results."""
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
        """Intervals until the error is, and stays, below `CLOSE`; None: it does not."""
        known = 0
        for number, error in enumerate(self.series, 1):
            if error >= CLOSE:
                known = number
        return None if known == len(self.series) else known + 1


def root_mean_square(errors: list[float]) -> float:
    """Of errors that are root mean squares themselves."""
    return _short(math.sqrt(statistics.fmean(error * error for error in errors)))


def measure(case: Case) -> dict[str, Any]:
    """One fleet: its record in the results."""
    made = fleet(case.fabric, case.limiters, case.seed, case.conditions)
    measured = {DEMAND: _demand, DEATH: _death, CHURN: _churn}[case.part]
    return {"case": case.document, **measured(made, case)}


def _started(made: Fleet, case: Case) -> Errors:
    """Let a fleet that starts all at once come to know itself."""
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
    """The one that most are behind, who wants as much as all others together, dies and returns."""
    _started(made, case)
    victim = _busiest(made)
    made.demand[victim] = sum(made.demand[name] for name in made.names if name != victim)
    _run(made, QUIET + start_up(case.fabric, case.limiters))
    made.dead.add(victim)
    others = {case.limiters - 2}
    more = round(WAITING * _part(case))
    wait = 24 * cycle(case.fabric, case.limiters) + 3 * settling(case.fabric, case.limiters) + more
    counted_out: list[bool] = []
    death = Errors()
    for _ in range(wait):
        made.run(1)
        death.look(made)
        counted_out.append(made.connected() == others)
    made.restart(victim)
    made.dead.clear()
    known = 3 * cycle(case.fabric, case.limiters) + 3 * settling(case.fabric, case.limiters)
    counted_in: list[bool] = []
    back = Errors()
    for _ in range(known + more):
        made.run(1)
        back.look(made)
        counted_in.append(made.connected() == {case.limiters - 1})
    return {
        "death": death.document
        | {"close_after": death.close_after, "counted_after": _settled(counted_out)},
        "return": back.document
        | {"close_after": back.close_after, "counted_after": _settled(counted_in)},
        **_series(case, {"death": death, "return": back}),
    }


def _busiest(made: Fleet) -> str:
    """Who is told most by others in a round: in a tree, who has most children."""
    told = dict.fromkeys(made.names, 0)
    rng = Random(1)
    for name in made.names:
        told[name] = len(made.fabrics[name].membership.targets(rng))
    return max(made.names, key=lambda name: (told[name], name))


def _churn(made: Fleet, case: Case) -> dict[str, Any]:
    """One of those that live dies at every so many intervals, and is back after `AWAY_INTERVALS`.

    Limiters are judged from `YOUNG` intervals after they came back on.
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
    """After how many intervals something is so, and stays so; None: it does not."""
    false = [number for number, so in enumerate(happened, 1) if not so]
    last = false[-1] if false else 0
    return None if last == len(happened) else last + 1


def _series(case: Case, phases: dict[str, Errors]) -> dict[str, Any]:
    """The errors over time, of the first seed."""
    if case.seed != 1:
        return {}
    return {"series": {name: list(map(_short, found.series)) for name, found in phases.items()}}


def _short(number: float) -> float:
    """Four digits are enough, and make a small file."""
    return float(f"{number:.4g}")
