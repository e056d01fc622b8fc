"""The updates of a tree between two rounds: sums that have changed by much."""

from __future__ import annotations

import pytest

from drld.gossip.fabrics.tree import NEWS, Tree
from drld.gossip.fabrics.tree_ranks import Role

from .test_tree import CHILD, NEIGHBOURS, NOW, PARENT, TICK, publish, settled, tree, update

TOTAL = 43.5
"""The total of `settled`, which knows 43 beside its own 0.5."""


def told() -> Tree:
    """A tree that has sent its neighbours all sums."""
    fabric = settled()
    publish(fabric, 0.5, NOW)
    return fabric


def test_a_sum_that_was_sent_is_no_news() -> None:
    assert settled().pressing(0.5, NOW * TICK)
    assert not told().pressing(0.5, NOW * TICK)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_change_of_a_part_of_the_total_is_news(sign: int) -> None:
    least = NEWS * TOTAL
    assert not told().pressing(0.5 + sign * 0.95 * least, NOW * TICK)
    fabric = told()
    value = 0.5 + sign * 1.05 * least
    assert fabric.pressing(value, NOW * TICK)
    publish(fabric, value, NOW)
    assert not fabric.pressing(value, NOW * TICK)


def test_small_changes_add_up() -> None:
    fabric = told()
    half = NEWS * TOTAL * 0.6
    assert not fabric.pressing(0.5 + half, NOW * TICK)
    assert fabric.pressing(0.5 + 2 * half, NOW * TICK)


@pytest.mark.parametrize(
    ("peer", "role", "value"), [(PARENT, Role.CHILD, 41.0), (CHILD, Role.PARENT, 3.0)]
)
def test_a_neighbours_sum_is_news_for_the_others(peer: str, role: Role, value: float) -> None:
    fabric = told()
    fabric.receive(peer, update(1, role, value, 2), NOW * TICK)
    assert fabric.pressing(0.5, NOW * TICK)
    publish(fabric, 0.5, NOW)
    assert not fabric.pressing(0.5, NOW * TICK)


def test_the_end_of_all_demand_is_news_once() -> None:
    fabric = told()
    for peer, role, _ in NEIGHBOURS:
        fabric.receive(peer, update(1, role, 0.0, 1), NOW * TICK)
    assert fabric.pressing(0.0, NOW * TICK)
    publish(fabric, 0.0, NOW)
    assert not fabric.pressing(0.0, NOW * TICK)


def test_a_limiter_without_neighbours_has_no_news_to_send() -> None:
    assert not tree().pressing(5.0, 0)
