"""`python -m testbed.fabrics.flow_updating`: what drld would have if its fabric averaged. Pure.

Flow updating (Jesus, Baquero, Almeida, *Fault-tolerant aggregation by flow updating*, DAIS 2009) is
the best known aggregation that loss cannot bias and that needs no structure. It is no fabric of
drld; this is its evidence (docs/gossip.md). So it is built as small and as well off as it can be:
nobody dies, and all know how many there are.

Theory of operation. Limiter i with the value v_i holds for each neighbour j a flow f_ij and the
average a_ij that j told last, and estimates e_i = v_i - sum of f_ij. In each round it averages,

    a = (e_i + sum of a_ij) / (1 + neighbours),    f_ij += a - a_ij,    a_ij = a,

and tells f_ij and a, which fit an update's value and weight; j takes -f_ij and a in their place.
A flow is absolute, so a lost update only delays; f_ij = -f_ji restores sum e_i = sum v_i. The total
believed in is N e_i.

Overlay: rings over all limiters, each in another random order and without common links, so that all
have the same number of neighbours. Of these `told` are told in a round, in turns.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import click

from testbed.fabrics.fleet import INTERVAL_NS
from testbed.fabrics.measure import CLOSE, RESTLESS, STEADY, STEP
from testbed.sim.network import Conditions, Network


class Manner(NamedTuple):
    """Of averaging."""

    degree: int
    """Neighbours of a limiter; even."""
    told: int
    """How many of them in a round."""


class Said(NamedTuple):
    """An update."""

    flow: float
    average: float


class Limiter:
    """One of them."""

    def __init__(self, neighbours: list[str], told: int, rng: Random) -> None:
        self.value = 0.0
        self.flows = dict.fromkeys(neighbours, 0.0)
        self._averages: dict[str, float] = {}
        """Of those that were heard."""
        self._told = told
        self._turns = itertools.cycle(rng.sample(neighbours, len(neighbours)))

    @property
    def estimate(self) -> float:
        """What it takes for the mean of all values."""
        return self.value - sum(self.flows.values())

    def hear(self, neighbour: str, said: Said) -> None:
        """Take an update in."""
        self.flows[neighbour] = -said.flow
        self._averages[neighbour] = said.average

    def publish(self) -> list[tuple[str, Said]]:
        """Average, and tell those whose turn it is."""
        averages = self._averages
        mean = (self.estimate + sum(averages.values())) / (1 + len(averages))
        for neighbour, average in averages.items():
            self.flows[neighbour] += mean - average
            averages[neighbour] = mean
        targets = itertools.islice(self._turns, self._told)
        return [(target, Said(self.flows[target], mean)) for target in targets]


def overlay(names: list[str], degree: int, rng: Random) -> dict[str, list[str]]:
    """The neighbours of each."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for _ in range(degree // 2):
        while True:
            order = rng.sample(names, len(names))
            ring = list(zip(order, [*order[1:], order[0]], strict=True))
            if not any(other in found[name] for name, other in ring):
                break
        for name, other in ring:
            found[name].add(other)
            found[other].add(name)
    return {name: sorted(others) for name, others in found.items()}


class Fleet:
    """Limiters that want 0.5 to 1.5 MB/s each, on the paths of the other comparison."""

    def __init__(self, size: int, manner: Manner, loss: float, seed: int) -> None:
        rng = Random(seed)
        self.names = [f"l{number}" for number in range(size)]
        neighbours = overlay(self.names, manner.degree, rng)
        self.limiters = {name: Limiter(neighbours[name], manner.told, rng) for name in self.names}
        for limiter in self.limiters.values():
            limiter.value = 1e6 * (0.5 + rng.random())
        self._network: Network[Said] = Network(seed, Conditions(loss=loss))
        self._phases = sorted((rng.randrange(INTERVAL_NS), name) for name in self.names)
        self._now_ns = 0

    @property
    def total(self) -> float:
        """What all want."""
        return sum(limiter.value for limiter in self.limiters.values())

    @property
    def errors(self) -> list[float]:
        """Of the total that each believes in, as a part of the true one."""
        scale = len(self.names) / self.total
        return [limiter.estimate * scale - 1 for limiter in self.limiters.values()]

    def run(self, intervals: int, before: Callable[[], None] = lambda: None) -> list[list[float]]:
        """Let all tick so many times; the errors after each."""
        found = []
        for _ in range(intervals):
            before()
            for phase_ns, name in self._phases:
                now_ns = self._now_ns + phase_ns
                limiter = self.limiters[name]
                for source, said in self._network.receive(name, now_ns):
                    limiter.hear(source, said)
                for target, said in limiter.publish():
                    self._network.send(name, target, said, now_ns)
            self._now_ns += INTERVAL_NS
            found.append(self.errors)
        return found


class Found(NamedTuple):
    """Of one fleet."""

    restless: float
    """Error while each demand walks by 3 % an interval."""
    known: float
    """Seconds until a doubled total is known."""
    highest: float
    """Highest total believed in meanwhile, beyond the true one, as a part of it."""


def rms(errors: list[float]) -> float:
    """Root mean square."""
    return math.sqrt(statistics.fmean(error * error for error in errors))


def measure(size: int, manner: Manner, loss: float, seed: int) -> Found:
    """What `testbed.fabrics.measure` measures of a fabric, in the same way."""
    made = Fleet(size, manner, loss, seed)
    rng = Random(seed)
    made.run(3 * STEP + STEADY)
    stepping = made.limiters[rng.choice(made.names)]
    own = stepping.value
    stepping.value += made.total
    up = made.run(STEP)
    stepping.value = own
    made.run(STEP)

    def walk() -> None:
        for limiter in made.limiters.values():
            limiter.value *= math.exp(rng.gauss(0, 0.03))

    restless = made.run(RESTLESS, walk)
    late = [number for number, errors in enumerate(up, 1) if rms(errors) >= CLOSE]
    known = math.inf if late[-1:] == [STEP] else (late[-1] if late else 0) + 1
    return Found(
        math.sqrt(statistics.fmean(rms(errors) ** 2 for errors in restless)),
        known * INTERVAL_NS / 1e9,
        max(max(errors) for errors in up),
    )


MANNERS = (Manner(4, 3), Manner(4, 4), Manner(6, 6))
FLEETS = {10: 8, 100: 2, 490: 1}
"""How many of each size."""
LOSSES = (0.0, 0.2)


def row(size: int, loss: float, manner: Manner, fleets: int) -> str:
    """Of the table: over the fleets the mean square of errors, the median of times, the highest."""
    all_found = [measure(size, manner, loss, seed) for seed in range(1, 1 + fleets)]
    known = statistics.median(found.known for found in all_found)
    cells = (
        f"{size:,}", f"{100 * loss:g} %", str(manner.degree), str(manner.told),
        f"{100 * rms([found.restless for found in all_found]):.1f} %",
        f"{known:.2f} s" if known < math.inf else "never",
        f"+{100 * max(found.highest for found in all_found):,.0f} %",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


@click.command()
@click.option("--most", type=click.IntRange(10), default=max(FLEETS), help="Limiters of a fleet.")
def main(*, most: int) -> None:
    """Measure flow updating as the fabrics are: the table of results/gossip.md."""
    click.echo(
        "| limiters | lost | degree | updates an interval | restless | doubled: known after "
        "| highest total meanwhile |"
    )
    click.echo("|---|---|---|---|---|---|---|")
    for size, fleets in FLEETS.items():
        for loss in LOSSES if size <= most else ():
            for manner in MANNERS:
                click.echo(row(size, loss, manner, fleets))


if __name__ == "__main__":
    main()
