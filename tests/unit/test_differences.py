"""The differences between two configurations."""

from __future__ import annotations

from typing import Any

import pytest

from drld.reload import Difference, differences, tables

LIMITER = {"name": "lim1", "listen": "10.0.0.1:7946"}
LIMIT = {"id": 1, "name": "a", "rate": "10mbit", "match": {"out": "eth1"}}
PEER = {"name": "lim2", "address": "10.0.0.2:7946"}
BASE: dict[str, Any] = {"limiter": LIMITER, "peer": [PEER], "limit": [LIMIT]}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),
        ({"limiter": {**LIMITER, "name": "x"}}, [("limiter", {"name": ("lim1", "x")})]),
        ({"gossip": {"fabric": "mesh"}}, [("gossip", {"fabric": (None, "mesh")})]),
        (
            {"peer": [{**PEER, "address": "x"}]},
            [("peer lim2", {"address": (PEER["address"], "x")})],
        ),
        # The id makes it the same limit, and the name a peer.
        ({"limit": [{**LIMIT, "name": "b"}]}, [("limit b", {"name": ("a", "b")})]),
        (
            {"limit": [{**LIMIT, "match": {"in": "eth1"}}]},
            [("limit a", {"match.out": ("eth1", None), "match.in": (None, "eth1")})],
        ),
        (
            {"limit": [{**LIMIT, "allocator": {"name": "fair", "margin": 0.0}}]},
            [("limit a", {"allocator.name": (None, "fair"), "allocator.margin": (None, 0.0)})],
        ),
    ],
)
def test_changed_keys_are_listed_by_table(
    change: dict[str, Any], found: list[tuple[str, Any]]
) -> None:
    compared = differences(tables(BASE), tables({**BASE, **change}))
    kinds = ["added" if "gossip" in change else "changed"] * len(found)
    assert compared == [
        Difference(table, kind, keys)  # type: ignore[arg-type]  # a literal
        for (table, keys), kind in zip(found, kinds, strict=True)
    ]


def test_additions_and_removals_differ_and_the_order_does_not() -> None:
    second = {**LIMIT, "id": 2, "name": "b"}
    both = {**BASE, "limit": [second, LIMIT]}
    (added,) = differences(tables(BASE), tables(both))
    assert (added.table, added.change) == ("limit b", "added")
    assert added.keys["match.out"] == (None, "eth1")
    (removed,) = differences(tables(both), tables(BASE))
    assert (removed.table, removed.change, removed.keys["id"]) == ("limit b", "removed", (2, None))
    assert differences(tables(both), tables({**BASE, "limit": [LIMIT, second]})) == []
