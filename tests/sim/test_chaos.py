"""What the chaos suite promises of the limit in use: its faults, done to virtual engines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

import pytest

from drld.gossip import FABRICS
from testbed.chaos.promises import CLOSED, CUT, FLAPPING, KILLED
from testbed.chaos.scene import LIMITERS

from ..factories import TICK_NS
from .conservative import Fleet

FLOWS = 4
SECOND = 20
LONG, AFTER = 100, 120
"""Intervals: of a fault that is found out, and after it."""
NEAR = 0.05
"""A promise is no less than what happens by more than this."""

Steps = Iterable[int]
"""Does things to a fleet, and says how many intervals to go on for."""


def least(
    fabric: str, struck: int, act: Callable[[Fleet, list[str]], Steps], closed: bool
) -> float:
    """The least that is allotted in any second, over the limit; `closed`: the dead pass nothing."""
    fleet = Fleet(fabric, [FLOWS] * LIMITERS, seed=struck)
    fleet.run(LONG)
    names = [fleet.names[(struck + index) % LIMITERS] for index in range(LIMITERS)]
    sums = []
    for intervals in itertools.chain(act(fleet, names), [AFTER]):
        for _ in range(intervals):
            fleet.run(1)
            sums.append(
                sum(
                    fleet.passes(name)
                    for name, node in fleet.nodes.items()
                    if node.alive or not closed
                )
            )
    return min(
        sum(sums[begin : begin + SECOND]) / SECOND for begin in range(len(sums) - SECOND + 1)
    )


def cut(*paths: tuple[int, int]) -> Callable[[Fleet, list[str]], Steps]:
    """Paths from and to limiters, by number."""

    def act(fleet: Fleet, names: list[str]) -> Steps:
        fleet.cut((names[source], names[destination]) for source, destination in paths)
        yield LONG
        fleet.cut(())

    return act


ALONE = ((0, 1), (1, 0), (0, 2), (2, 0))


def flapping(cut_for: int, between: int) -> Callable[[Fleet, list[str]], Steps]:
    """One that is cut off, again and again."""

    def act(fleet: Fleet, names: list[str]) -> Steps:
        for _ in range(5):
            fleet.cut((names[source], names[destination]) for source, destination in ALONE)
            yield cut_for
            fleet.cut(())
            yield between

    return act


def killed(count: int) -> Callable[[Fleet, list[str]], Steps]:
    """Some daemons die, and are started again."""

    def act(fleet: Fleet, names: list[str]) -> Steps:
        for name in names[:count]:
            fleet.nodes[name].kill()
        yield LONG
        for name in names[:count]:
            fleet.nodes[name].start(fleet.clock.now_ns)

    return act


def frozen(fleet: Fleet, names: list[str]) -> Steps:
    """One stands still."""
    fleet.nodes[names[0]].freeze(LONG * TICK_NS)
    yield LONG


CUTS = (cut(*ALONE), cut((0, 1), (0, 2)), cut((0, 1), (1, 0)), frozen)
RHYTHMS = tuple(flapping(*rhythm) for rhythm in ((24, 4), (24, 24), (28, 8)))


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize(
    ("promised", "acts", "closed"),
    [
        (CUT, CUTS, False),
        (FLAPPING, RHYTHMS, False),
        (KILLED, [killed(count) for count in (1, 2, 3)], False),
        (CLOSED[1], [killed(1)], True),
        (CLOSED[2], [killed(2)], True),
        (CLOSED[3], [killed(3)], True),
    ],
    ids=["cut", "flapping", "killed", "one closed", "two closed", "all closed"],
)
def test_what_is_promised_is_what_is_allotted(
    fabric: str,
    promised: Mapping[str, float],
    acts: Iterable[Callable[[Fleet, list[str]], Steps]],
    *,
    closed: bool,
) -> None:
    found = min(
        least(fabric, struck, act, closed=closed)
        for struck, act in itertools.product(range(LIMITERS), acts)
    )
    assert promised[fabric] <= found <= promised[fabric] + NEAR
