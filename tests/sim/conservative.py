"""The conservative rule: by how much the sum of the local limits exceeds the limit, at most.

`python -m tests.sim.conservative --seeds N` carries out N random schedules for each fabric and
allocator. It prints those after which the sum stays above the limit, and exits with 1 if there are
any (results/conservative-rule.md). With `--cuts` a schedule is one cut and its end, and with
`--breaks` several of both. Then the sum may not exceed the limit at any moment.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence

from drld.gossip.fabrics import FABRICS
from testbed.sim.network import MS

from ..factories import TICK_NS
from ..fleets.events import Event, carry_out, random_breaks, random_cut, random_fleet
from ..fleets.limiters import FluidFleet

MOST = 1 + 1e-5
"""The largest sum over the limit: local limits are rounded to bytes/s, values to float32."""


def excess(fleet: FluidFleet, events: Sequence[Event], watched: int = 60) -> float:
    """The largest sum of the local limits later than a detection time after the last event.

    Over the limit.
    """
    fleet.run(80)
    for event in events:
        carry_out(fleet, event)
    thawed_ns = max(node.frozen_until_ns for node in fleet.nodes.values())
    fleet.run(max(0, thawed_ns - fleet.now_ns) / TICK_NS)
    fleet.run(fleet.detection_intervals)
    fleet.watch()
    fleet.run(watched)
    return fleet.most


def excess_of_cuts(fleet: FluidFleet, *cuts: Event, reloads: Sequence[int] = ()) -> float:
    """The largest sum of the local limits from before a cut until after its end; over the limit.

    Meanwhile limiters may reload: a bit for each of those that do so at once.
    """
    fleet.run(80)
    fleet.watch()
    for cut in cuts:
        carry_out(fleet, cut)
    for _ in ("cut", "whole again"):
        step = (fleet.detection_intervals + 5) / (len(reloads) + 1)
        for who in reloads:
            fleet.run(step)
            carry_out(fleet, Event(0, "reload", 0, who))
        fleet.run(step)
        fleet.cut(())
    return fleet.most


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="schedules of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--fabric", action="append", choices=FABRICS, help="only this one; may be repeated"
    )
    parser.add_argument("--allocator", action="append", help="only this one; may be repeated")
    parser.add_argument("--cuts", action="store_true", help="one cut and its end each, with FPS")
    parser.add_argument(
        "--breaks", action="store_true", help="several cuts and ends each, with FPS"
    )
    parser.add_argument(
        "--delay", type=int, default=10, help="one-way delay of paths, with --cuts and --breaks, ms"
    )
    args = parser.parse_args()
    allocators = ("fps",) if args.cuts or args.breaks else ("static", "fps", "fps-random-drop")
    kinds = itertools.product(args.fabric or FABRICS, args.allocator or allocators)
    bad = 0
    for fabric, allocator in kinds:
        sums = []
        for seed in range(args.first, args.first + args.seeds):
            if args.cuts:
                fleet, cut = random_cut(fabric, seed, args.delay * MS)
                events = [cut]
                sums.append(excess_of_cuts(fleet, cut))
            elif args.breaks:
                fleet, events = random_breaks(fabric, seed, args.delay * MS)
                sums.append(excess_of_cuts(fleet, *events))
            else:
                fleet, events = random_fleet(fabric, allocator, seed)
                sums.append(excess(fleet, events))
            if len(sums) % 20 == 0:
                print(f"{fabric} {allocator}: {len(sums)}", end="\r", file=sys.stderr, flush=True)
            if sums[-1] > MOST:
                loss = fleet.network.bounded_loss
                print(f"{fabric} {allocator} {seed}: {sums[-1]:.4f}, {loss} lost")
                print(f"    {events}", flush=True)
        over = sum(value > MOST for value in sums)
        print(f"{fabric} {allocator}: {over} of {len(sums)} above, at most {max(sums):.6f}")
        bad += over
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
