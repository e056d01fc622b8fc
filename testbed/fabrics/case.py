"""The compared fleets: a base case, variations of one condition, and a few corners. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from testbed.fabrics.fleet import BRANCHING, INTERVAL_NS
from testbed.sim.network import MS, Conditions

DEMAND = "demand"
"""Demands that are constant, walk at random, or jump."""
DEATH = "death"
"""One limiter dies and comes back."""
CHURN = "churn"
"""Limiters die and come back all the time."""

_INTERVALS = 300
"""The approximate number of intervals of a case."""
DELAY_MS = 20
"""The default delay of paths, one way."""


@dataclass(frozen=True, slots=True)
class Case:
    """One fleet and its events."""

    part: str
    fabric: str
    limiters: int
    loss: float = 0.0
    delay_ms: int = DELAY_MS
    jitter_ms: int = 0
    """A jitter above an interval reorders a link's updates."""
    duplicate: float = 0.0
    every: int = 0
    """Intervals between two deaths; for `CHURN`."""
    seed: int = 1

    @property
    def conditions(self) -> Conditions:
        """The network's conditions."""
        return Conditions(self.delay_ms * MS, self.jitter_ms * MS, self.loss, self.duplicate)

    @property
    def document(self) -> dict[str, Any]:
        """The case as data, for results."""
        return asdict(self)

    @property
    def expected_s(self) -> float:
        """The expected duration: a tick takes 0.1 ms, and 17 us for each update that it sends."""
        targets = self.limiters if self.fabric == "mesh" else BRANCHING
        return _INTERVALS * self.limiters * (100e-6 + 17e-6 * targets)

    @property
    def variant(self) -> str:
        """The differences from the base case, in words."""
        said = []
        if self.loss:
            said.append(f"{100 * self.loss:g} % lost")
        if self.delay_ms != DELAY_MS:
            said.append(f"paths of {self.delay_ms} ms")
        if self.jitter_ms:
            said.append(f"jitter of {self.jitter_ms} ms")
        if self.duplicate:
            said.append(f"{100 * self.duplicate:g} % twice")
        if self.every:
            said.append(f"a death every {self.every * INTERVAL_NS / 1e9:g} s")
        return " and ".join(said) or "nothing lost"


SIZES = (10, 100, 490, 1000)
_SEEDS = {10: 8, 100: 2}
LOSSES = (0.0, 0.01, 0.05, 0.2, 0.4)
_PATHS: tuple[dict[str, Any], ...] = (
    {"delay_ms": 1}, {"delay_ms": 200}, {"jitter_ms": 120}, {"duplicate": 0.2},
)  # fmt: skip
_CORNERS: tuple[dict[str, Any], ...] = (
    {"loss": 0.2, "delay_ms": 200},
    {"loss": 0.05, "jitter_ms": 120, "duplicate": 0.2},
    {"loss": 0.4, "delay_ms": 200, "jitter_ms": 120, "duplicate": 0.2},
)
_CHURNS: tuple[dict[str, Any], ...] = (
    {"every": 40}, {"every": 10}, {"every": 200}, {"every": 40, "loss": 0.2},
)  # fmt: skip


def cases(fabrics: tuple[str, ...], sizes: tuple[int, ...], *, quick: bool) -> list[Case]:
    """All cases of these fabrics and sizes, the smaller fleets first."""
    found = []
    for size in sizes:
        for seed in range(1, 1 + (1 if quick else _SEEDS.get(size, 1))):
            for fabric in fabrics:
                found += [replace(case, seed=seed) for case in _of(fabric, size, quick=quick)]
    return found


def _of(fabric: str, size: int, *, quick: bool) -> Iterator[Case]:
    base = Case(DEMAND, fabric, size)
    yield from (replace(base, loss=loss) for loss in ((0.0, 0.2) if quick else LOSSES))
    if not quick:
        yield from (replace(base, **changes) for changes in (*_PATHS, *_CORNERS))
    for loss in (0.0,) if quick else (0.0, 0.05, 0.2):
        yield Case(DEATH, fabric, size, loss=loss)
    yield from (Case(CHURN, fabric, size, **it) for it in (_CHURNS[:2] if quick else _CHURNS))
