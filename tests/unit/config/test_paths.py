"""Whatever is wrong, and wherever: one line, which begins with the key's path."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from drld import config
from drld.allocators import ALLOCATORS
from drld.capture.registered.limit_table import MatchTable, PacketLimitTable
from drld.config.allocator import _parameters_table
from drld.config.schema import (
    GossipTable,
    KeyTable,
    LimiterTable,
    PeerTable,
    ProbesTable,
    RegistryTable,
    Table,
)
from drld.errors import ConfigError


def document(key_file: str) -> dict[str, Any]:
    """Every kind of table, those of arrays more than once."""

    def limit(number: int, name: str, **more: object) -> dict[str, Any]:
        match = {"out": "eth1"}
        return {"id": number, "name": name, "rate": "1mbit", "burst": "15kB", "match": match} | more

    return {
        "limiter": {"name": "l1", "listen": "10.0.0.1:7946"},
        "gossip": {"keys": [{"id": n, "file": key_file} for n in (1, 2)], "use": 1},
        "probes": {},
        "registry": {
            "endpoints": ["http://10.0.0.9:2379", "http://10.0.0.8:2379"],
            "fleet": "edge",
            "interfaces": {"uplink": "eth1"},
        },
        "peer": [{"name": f"l{n}", "address": f"10.0.0.{n}:7946"} for n in (2, 3)],
        "limit": [
            limit(1, "a", allocator={"name": "fps"}),
            limit(2, "b", shares={"l1": 0.5, "l2": 0.5}),
            limit(3, "c"),
        ],
    }


class Place(NamedTuple):
    """A table of the document."""

    where: tuple[str | int, ...]
    model: type[Table]

    @property
    def path(self) -> str:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.where)
        return path.removeprefix(".")

    @property
    def keys(self) -> dict[str, bool]:
        """The keys that it may have, and whether it must."""
        return {
            field.alias or name: field.is_required()
            for name, field in self.model.model_fields.items()
        }


PLACES = (
    Place(("limiter",), LimiterTable),
    Place(("gossip",), GossipTable),
    Place(("gossip", "keys", 1), KeyTable),
    Place(("probes",), ProbesTable),
    Place(("registry",), RegistryTable),
    Place(("peer", 1), PeerTable),
    Place(("limit", 2), PacketLimitTable),
    Place(("limit", 1, "match"), MatchTable),
    Place(("limit", 0, "allocator"), _parameters_table("fps")),  # type: ignore[arg-type]  # it is a Table
)
WRONG = datetime.date(2007, 8, 27)
"""Nothing is a date."""


def inside(tables: Any, where: tuple[str | int, ...]) -> Any:
    for part in where:
        tables = tables[part]
    return tables


@pytest.fixture
def good(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "fleet.key"
    file.write_text("00" * 16)
    file.chmod(0o600)
    made = document(str(file))
    config.from_document(made, "f")
    return made


def the_line(tables: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        config.from_document(tables, "f")
    (line,) = caught.value.problems
    return line


def keys(*, required: bool = False) -> list[Any]:
    return [
        pytest.param(place, key, id=f"{place.path}.{key}")
        for place in PLACES
        for key, must in place.keys.items()
        if must or not required
    ]


@pytest.mark.parametrize(("place", "key"), keys())
def test_a_value_of_the_wrong_type_is_named(good: dict[str, Any], place: Place, key: str) -> None:
    inside(good, place.where)[key] = WRONG
    line = the_line(good)
    assert line.startswith(f"f: {place.path}.{key}: must be ")
    assert line.endswith(f" (got the date or time {WRONG})")


@pytest.mark.parametrize(("place", "key"), keys(required=True))
def test_a_key_that_is_missing(good: dict[str, Any], place: Place, key: str) -> None:
    del inside(good, place.where)[key]
    assert the_line(good) == f"f: {place.path}.{key}: is required"


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.path)
def test_an_unknown_key_is_named(good: dict[str, Any], place: Place) -> None:
    inside(good, place.where)["zzz"] = 1
    assert the_line(good).startswith(f"f: {place.path}.zzz: unknown key; ")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.path)
def test_a_value_in_place_of_a_table_is_named(good: dict[str, Any], place: Place) -> None:
    inside(good, place.where[:-1])[place.where[-1]] = WRONG
    line = the_line(good)
    assert line.startswith(f"f: {place.path}: must be ")
    assert line.endswith(f" (got the date or time {WRONG})")


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("gossip", "use"), 3, "gossip.use: must be the id of a key (got 3)"),
        (
            ("registry", "endpoints", 1),
            1,
            "registry.endpoints[1]: must be the URL of an etcd server such as "
            '"https://10.0.0.9:2379" (got 1)',
        ),
        (
            ("registry", "interfaces", "uplink"),
            "*",
            "registry.interfaces.uplink: must be the name of",
        ),
        (("registry", "interfaces", "up*"), "eth1", "registry.interfaces.'up*': must be the name"),
        (("limit", 2, "rate"), "1mbot", "limit[2].rate: must be a rate such as"),
        (("limit", 1, "shares", "l2"), "x", "limit[1].shares.l2: must be a number"),
        (("limit", 0, "allocator", "growth"), 0, "limit[0].allocator.growth: "),
    ],
)
def test_a_wrong_value_deep_inside_is_named(
    good: dict[str, Any], where: tuple[str | int, ...], value: object, said: str
) -> None:
    inside(good, where[:-1])[where[-1]] = value
    assert the_line(good).startswith(f"f: {said}")


def test_every_allocator_names_its_parameters(good: dict[str, Any]) -> None:
    for name in ALLOCATORS:
        for key in _parameters_table(name).model_fields:
            good["limit"][0]["allocator"] = {"name": name, key: WRONG}
            line = the_line(good)
            assert line.startswith(f"f: limit[0].allocator.{key}: must be ")
            assert line.endswith(f" (got the date or time {WRONG})")
