"""Bytes forwarded in any second, in faults too (docs/conservative-rule.md, "Bytes")."""

from __future__ import annotations

import itertools

import pytest

from drld.model import Enforcement

from .conservative_tcp import BOUND, DEMANDS, KINDS

PAIRS = itertools.product(["gtb", "grd", "fps-random-drop"], ["mesh", "pushsum", "tree"])


# Each pair of an allocator and a fabric, and each of them with both demands.
@pytest.mark.parametrize(
    ("kind", "fabric", "demand"),
    [(*pair, demand) for pair, demand in zip(PAIRS, itertools.cycle(DEMANDS))],
)
def test_no_second_exceeds_the_bound(kind: str, fabric: str, demand: str) -> None:
    """The bound holds at any time after any event."""
    forwarded = DEMANDS[demand](KINDS[kind], fabric, faults=True)
    assert forwarded.worst <= BOUND
    if kind != "gtb":
        assert forwarded.used > 0.95


def test_without_a_guard_grd_keeps_the_drop_probability_that_its_daemon_died_with() -> None:
    """The probability may be 0, which is why there is a guard (`tests.sim.conservative_tcp`).

    Five of the seeds from 60 to 129 show it.
    """
    plain, guarded = (
        DEMANDS["TCP"](KINDS[kind], "tree", faults=True, seed=72)
        for kind in ("grd of the paper", "grd")
    )
    assert plain.worst > 2 > BOUND >= guarded.worst


def test_without_a_guard_fps_keeps_the_drop_probability_of_its_dead_daemon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guarded allocator is a case of `test_no_second_exceeds_the_bound`."""
    monkeypatch.setattr(
        "drld.allocators.fps.guarded",
        lambda drop_probability, *_: Enforcement(drop_probability=drop_probability),
    )
    assert DEMANDS["TCP"](KINDS["fps-random-drop"], "mesh", faults=True).worst > 2 > BOUND
