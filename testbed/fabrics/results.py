"""The measured values by case. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from drld.gossip.fabrics import FABRICS
from testbed.fabrics.case import SIZES, Case, cases
from testbed.fabrics.fleet import INTERVAL_NS


class Results:
    """The records of runs."""

    def __init__(self, runs: Sequence[Mapping[str, Any]]) -> None:
        self.runs = runs
        found: dict[Case, list[Mapping[str, Any]]] = {}
        for run in runs:
            found.setdefault(Case(**{**run["case"], "seed": 1}), []).append(run)
        # Runs end in any order; tables have that of the cases.
        order = cases(tuple(FABRICS), SIZES, quick=False)
        self._by_case = {case: found[case] for case in [*order, *found] if case in found}

    @property
    def cases(self) -> list[Case]:
        """The measured cases, each with the first seed."""
        return list(self._by_case)

    def __contains__(self, case: Case) -> bool:
        return case in self._by_case

    def of_size(self, limiters: int) -> Results:
        """The results of the fleets of one size."""
        return Results([run for run in self.runs if run["case"]["limiters"] == limiters])

    def of(self, case: Case) -> list[Mapping[str, Any]]:
        """The runs of a case with any seed."""
        return self._by_case.get(case, [])

    def values(self, case: Case, *path: str) -> list[Any]:
        """The values of its runs under these keys."""
        found = []
        for run in self.of(case):
            value: Any = run
            for key in path:
                value = value[key]
            found.append(value)
        return found

    def rms(self, case: Case, *path: str) -> float | None:
        """The root mean square of errors."""
        values = self.values(case, *path)
        return math.sqrt(statistics.fmean(v * v for v in values)) if values else None

    def mean(self, case: Case, *path: str) -> float | None:
        """The mean of the values; None: there are none."""
        values = self.values(case, *path)
        return statistics.fmean(values) if values else None

    def extreme(self, case: Case, *path: str) -> float | None:
        """The value farthest from zero."""
        return max(self.values(case, *path), key=abs, default=None)

    def seconds(self, case: Case, *path: str) -> float | None:
        """The median of intervals, in seconds; infinite if most runs never reached the state."""
        values = [math.inf if v is None else v for v in self.values(case, *path)]
        return statistics.median_high(values) * INTERVAL_NS / 1e9 if values else None

    def series(self, case: Case, phase: str) -> list[float]:
        """The errors in each interval, with the first seed."""
        for run in self.of(case):
            if "series" in run:
                found: list[float] = run["series"][phase]
                return found
        return []

    def fabrics(self) -> list[str]:
        """The measured fabrics in order."""
        return list(dict.fromkeys(sorted(case.fabric for case in self._by_case)))
