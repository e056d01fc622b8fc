"""The age of news: how long ago what a limiter believes of another was told and replaced.

`python -m tests.sim.news` prints the largest age seen in fleets that gossip, for each fabric, size
and path, beside `Fabric.news_ns`: what docs/conservative-rule.md ("A bound on bytes") assumes.
With `--orders` it adds up the waiting times of trees of random names, whose limiters tick at random
times in a round: in how many of these some news is older than that.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from random import Random

from testbed.fabrics.fleet import BRANCHING, INTERVAL_NS, Fleet
from testbed.sim.known import families
from testbed.sim.network import Conditions

ROUNDS = 4
"""Rounds in which the age of each source's news is taken."""


def oldest(made: Fleet, sources: Sequence[str]) -> float:
    """The largest age of news of these limiters at a tick of any other, intervals.

    One source at a time tells the number of its round, so that what another believes says when it
    was told. It is out of date from when the source told the next number.
    """
    fabric = made.fabrics[made.names[0]]
    settling = 2 * fabric.news_ns // INTERVAL_NS + 2
    made.run(settling)
    most = 0.0
    for source in sources:
        for count in range(settling + ROUNDS):
            made.demand[source] = made.interval + 1.0
            made.run(1)
            if count >= settling:
                most = max(most, *(_age(made, source, name) for name in made.names))
        made.demand[source] = 0.0
        made.run(settling)
    return most


def _age(made: Fleet, source: str, name: str) -> float:
    """The age of a source's news at the last tick of a limiter, intervals."""
    if name == source:
        return 0.0
    # A number is that of an interval and one more, in which the next number replaces it.
    replaced_ns = made.views[name].remote * INTERVAL_NS + made.phase_ns[source]
    looked_ns = (made.interval - 1) * INTERVAL_NS + made.phase_ns[name]
    return max(looked_ns - replaced_ns, 0.0) / INTERVAL_NS


def oldest_of(phases: Mapping[str, float], path: float) -> float:
    """The largest age of news in a tree, rounds, from the waiting times on the longest ways.

    Args:
        phases: the time of each limiter's ticks in a round, rounds.
        path: the delay of each path, rounds.
    """
    tree = families(list(phases), BRANCHING)
    most = 0.0
    for source, told in phases.items():
        learns = {source: told}
        reached = [source]
        for name in reached:
            parent, children = tree[name]
            for peer in (*children, *([parent] if parent else [])):
                if peer not in learns:
                    rounds = math.ceil(learns[name] + path - phases[peer])
                    learns[peer] = phases[peer] + rounds
                    reached.append(peer)
        # At the tick before, a limiter still believed the value that was replaced.
        most = max(most, max(learns.values()) - told - 1)
    return most


def _print_orders(sizes: Sequence[int], paths: Sequence[float], fleets: int) -> None:
    for size, path in itertools.product(sizes, paths):
        covered = 1 + size.bit_length()
        ages = []
        for seed in range(fleets):
            rng = Random(f"{size}/{seed}")
            ages.append(
                oldest_of({f"h{rng.randrange(10**9)}": rng.random() for _ in range(size)}, path)
            )
        older = sum(age > covered for age in ages)
        print(
            f"tree, {size} limiters, paths {path:g} I: older than {covered} I in {older} of "
            f"{fleets} fleets, {max(ages):.2f} I at most",
            flush=True,
        )


def assumed(made: Fleet) -> float:
    """The age that the fabric says, intervals."""
    return made.fabrics[made.names[0]].news_ns / INTERVAL_NS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="fleets of each kind")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--sources", type=int, default=10, help="limiters whose news is followed")
    parser.add_argument("--size", type=int, action="append", help="limiters")
    parser.add_argument("--path", type=float, action="append", help="one way, intervals")
    parser.add_argument("--jitter", type=float, default=0.0, help="at random beside it, intervals")
    parser.add_argument("--loss", type=float, default=0.0, help="part of updates that is lost")
    parser.add_argument("--fabric", action="append", choices=("mesh", "tree"))
    parser.add_argument("--orders", type=int, help="fleets whose waiting times are added up")
    args = parser.parse_args()
    paths = args.path or (0.0, 0.2, 0.5, 1.0)
    if args.orders:
        _print_orders(args.size or (5, 6, 7, 10, 20, 50), paths, args.orders)
        return
    kinds = itertools.product(
        args.fabric or ("mesh", "tree"), args.size or (2, 3, 5, 10, 20, 40), paths
    )
    for fabric, size, path in kinds:
        ages = []
        for seed in range(args.first, args.first + args.seeds):
            conditions = Conditions(
                delay_ns=round(path * INTERVAL_NS),
                jitter_ns=round(args.jitter * INTERVAL_NS),
                loss=args.loss,
            )
            made = Fleet(fabric, size, seed, conditions)
            ages.append(oldest(made, made.names[: args.sources]))
        print(
            f"{fabric}, {size} limiters, paths {path:g} I: {max(ages):.2f} I of {assumed(made):g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
