"""Daemons that fail, several at once: the sum of the local limits at every moment.

docs/conservative-rule.md promises of a mesh and of a tree, while links stay as they are:

    while daemons fail   the sum is at most L (1 + the static shares of all daemons that died,
                         froze, continued or restarted in the last detection time)
    afterwards           the sum is at most L

If links broke in the last detection time as well, a daemon counts with its local limit where that
is larger than its static share. Push-sum promises only the second part, without loss.

`python -m tests.sim.failures --seeds N` carries out N random schedules for each fabric, and prints
those that break the promise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from random import Random

from drld.gossip.fabrics import FABRICS

from ..factories import TICK_NS
from ..fleets.events import CUTS, Event, carry_out
from ..fleets.limiters import FluidFleet
from .conservative import MOST

FAILURES = ("kill", "start", "freeze")
LINKS = (*CUTS, "heal")


class Watch:
    """Compares the sum of the local limits with its bound, whenever an enforcement may change."""

    def __init__(self, fleet: FluidFleet) -> None:
        self.excess = 0.0
        """The largest difference of the sum and its bound, over the limit."""
        self.at = ""
        """The sum, its bound and the interval of that moment."""
        self._fleet = fleet
        self._detection_ns = (fleet.detection_intervals + 1) * TICK_NS
        self._began_ns = fleet.now_ns
        self.settled_ns = fleet.now_ns
        """A detection time after the last event."""
        self._links_settled_ns = fleet.now_ns
        self._failed: dict[str, tuple[float, int]] = {}
        """The part of the limit that a limiter's failure may add, and its end, by limiter."""
        fleet.look = self._look

    def carry_out(self, event: Event) -> None:
        """Carry out an event of this fleet now."""
        fleet = self._fleet
        end_ns = fleet.now_ns
        if event.what in LINKS:
            self._links_settled_ns = end_ns + self._detection_ns
        else:
            name = fleet.members[event.who % len(fleet.members)]
            part, until_ns = self._failed.get(name, (0.0, end_ns))
            share = 1 / len(fleet.names)
            links_settled = end_ns > self._links_settled_ns
            added = share if links_settled else max(share, fleet.passes(name))
            if event.what == "freeze":
                end_ns += (1 + event.whom % 40) * TICK_NS
            part = added if fleet.now_ns > until_ns else max(part, added)
            self._failed[name] = part, max(until_ns, end_ns + self._detection_ns)
        self.settled_ns = max(self.settled_ns, end_ns + self._detection_ns)
        carry_out(fleet, event)

    def bound(self) -> float:
        """The largest sum that is promised now, over the limit."""
        now_ns = self._fleet.now_ns
        return 1 + sum(part for part, until_ns in self._failed.values() if now_ns <= until_ns)

    def _look(self) -> None:
        total, bound = self._fleet.in_force(), self.bound()
        if total - bound > self.excess:
            self.excess = total - bound
            interval = (self._fleet.now_ns - self._began_ns) / TICK_NS
            self.at = f"{total:.4f} > {bound:.4f} at interval {interval:.1f}"


def excess(fleet: FluidFleet, events: Sequence[Event], *, afterwards: bool = False) -> Watch:
    """Carry out a schedule, and watch the sum at every moment, or only `afterwards`.

    Daemons fail at any time; a link breaks or returns a detection time after the last event.
    """
    fleet.run(80)
    watch = Watch(fleet)
    for event in events:
        if event.what in LINKS:
            fleet.run(max(0, watch.settled_ns - fleet.now_ns) / TICK_NS)
            if (event.what == "heal") is not bool(fleet.network.cut):
                continue
        fleet.run(event.after)
        watch.carry_out(Event(0, event.what, event.who, event.whom))
    fleet.run(max(0, watch.settled_ns - fleet.now_ns) / TICK_NS)
    if afterwards:
        watch.excess, watch.at = 0.0, ""
    fleet.run(60)
    return watch


def random_schedule(fabric: str, seed: int) -> tuple[FluidFleet, list[Event]]:
    """A fleet of 2 to 12 limiters, and its events."""
    rng = Random(f"{fabric}/failures/{seed}")
    size = rng.randint(2, 12)
    flows = [rng.choice((0, 1, 1, 2, 5, 30)) for _ in range(size)]
    loss = 0.0 if fabric == "pushsum" else rng.choice((0.0, 0.05, 0.2))
    events = [
        Event(
            rng.choice((0, 0, 1, 5, 10, 20, 30, 40, 80)),
            rng.choice((*FAILURES * 4, *LINKS)),
            rng.randrange(size),
            rng.randrange(1 << size),
        )
        for _ in range(rng.randint(1, 8))
    ]
    return FluidFleet(fabric, flows, seed=seed, loss=loss), events


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="schedules for each fabric")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fabric", action="append", choices=FABRICS, help="no others")
    args = parser.parse_args()
    bad = 0
    for fabric in args.fabric or FABRICS:
        above, largest = 0, 0.0
        for seed in range(args.first, args.first + args.seeds):
            fleet, events = random_schedule(fabric, seed)
            watch = excess(fleet, events, afterwards=fabric == "pushsum")
            largest = max(largest, watch.excess)
            if watch.excess > MOST - 1:
                above += 1
                print(f"{fabric} {seed}: {watch.at}, {len(fleet.names)} limiters", flush=True)
                print(f"    {fleet.network.bounded_loss} lost, {events}", flush=True)
        print(f"{fabric}: {above} of {args.seeds} above, by at most {largest:.6f}", flush=True)
        bad += above
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
