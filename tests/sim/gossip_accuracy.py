"""How well each fabric knows the total, for docs/gossip.md: `python -m tests.sim.gossip_accuracy`.

Root mean square, over limiters, time and fleets, of the error of the total that a limiter believes
in, in per cent of the true total. Intervals are 50 ms, paths take 20 ms, branching is 3.

    steady    demands of 0.5 to 1.5 MB/s that do not change
    restless  each walks at random by 3 % an interval
    doubled   0.75 to 2.25 s after one limiter's demand grew by the total of all
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from drld.gossip import FABRICS
from testbed.sim.network import Conditions

from .gossip_fleet import Fleet, fleet, restless_error, start_up

FLEETS = {2: 30, 10: 12, 50: 4}
"""Seeds for each size."""
LOSSES = (0.0, 0.01, 0.05, 0.2)


def root_mean_square(errors: Iterable[float]) -> float:
    return math.sqrt(statistics.fmean(error * error for error in errors))


def steady_error(made: Fleet, intervals: int) -> float:
    errors = []
    for _ in range(intervals):
        made.run(1)
        errors.append(made.error())
    return root_mean_square(errors)


def measure(fabric: str, size: int, loss: float) -> tuple[float, float, float]:
    """The three errors."""
    steady, restless, doubled = [], [], []
    intervals = 30 if fabric == "mesh" else 200
    for seed in range(1 if fabric == "mesh" else FLEETS[size]):
        made = fleet(fabric, size, seed, Conditions(loss=loss))
        made.run(start_up(fabric, size) + 20)
        steady.append(steady_error(made, intervals))
        made.demand["l0"] += made.total
        made.run(15)
        doubled.append(steady_error(made, 30))
        made = fleet(fabric, size, seed, Conditions(loss=loss))
        made.run(start_up(fabric, size) + 20)
        restless.append(restless_error(made, intervals, seed))
    return root_mean_square(steady), root_mean_square(restless), root_mean_square(doubled)


def main() -> None:
    print("| fabric | limiters | loss | steady | restless | doubled |")
    print("|---|---|---|---|---|---|")
    for fabric in FABRICS:
        for size in FLEETS:
            for loss in LOSSES:
                errors = measure(fabric, size, loss)
                shown = " | ".join(f"{100 * error:.1f} %" for error in errors)
                print(f"| {fabric} | {size} | {100 * loss:g} % | {shown} |", flush=True)


if __name__ == "__main__":
    main()
