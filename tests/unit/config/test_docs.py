"""docs/configuration.md documents every key there is, with its default, and none that is not."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from drld import units
from drld.allocators import ALLOCATORS
from drld.config.fields import PROTOCOLS
from drld.config.schema import (
    GossipTable,
    KeyTable,
    LimiterTable,
    LimitTable,
    MatchTable,
    PeerTable,
    ProbesTable,
    RegistryTable,
)

DOCS = Path(__file__).resolve().parents[3] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text()

Row = dict[str, tuple[str, str]]


def documented(begin: str) -> Row:
    """Type and default of each key in the first table of keys after `begin`."""
    assert begin in CONFIGURATION
    table = CONFIGURATION.partition(begin)[2].partition("| key |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| .{10,} \|$", table, re.MULTILINE)
    assert rows
    return {key: (kind, default) for key, kind, default in rows}


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("## `[limiter]`", LimiterTable),
        ("## `[gossip]`", GossipTable),
        ("## `[registry]`", RegistryTable),
        ("### `keys`", KeyTable),
        ("## `[probes]`", ProbesTable),
        ("## `[[peer]]`", PeerTable),
        ("## `[[limit]]`", LimitTable),
        ("### `match`", MatchTable),
    ],
)
def test_every_key_is_documented_with_its_default(heading: str, model: type[BaseModel]) -> None:
    rows = documented(heading)
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    assert list(rows) == list(fields)
    for key, field in fields.items():
        kind, default = rows[key]
        if field.default is PydanticUndefined and field.default_factory is None:
            assert default == "required", key
        elif isinstance(field.default, int) and kind.startswith("duration"):
            assert default == f'`"{units.format_duration(field.default)}"`', key
        elif isinstance(field.default, (str, int, float)):
            assert default == f"`{json.dumps(field.default)}`", key
        else:  # A default that depends on other keys is described.
            assert default != "required", key


def test_every_allocator_and_its_parameters_are_documented() -> None:
    section = CONFIGURATION.partition("### `allocator`")[2].partition("Parameters of")[0]
    listed = re.findall(r"^\| `([a-z-]+)` \|.*\| (.+) \|$", section, re.MULTILINE)
    assert [name for name, _ in listed] == list(ALLOCATORS)
    for name, allocator in ALLOCATORS.items():
        fields = dataclasses.fields(allocator.Parameters)
        assert (dict(listed)[name] == "none") == (not fields)
        if fields:
            heading = f"`{name}`" if name in {"grd", "fair"} else "`fps` and `fps-random-drop`"
            rows = documented(f"Parameters of {heading}")
            assert {key: default for key, (_, default) in rows.items()} == {
                field.name: f"`{str(field.default).lower()}`" for field in fields
            }


def test_every_protocol_name_is_documented() -> None:
    names = documented("### `match`")["protocol"]
    assert names
    row = next(line for line in CONFIGURATION.splitlines() if line.startswith("| `protocol` |"))
    assert re.findall(r"`(\w+)`", row)[1:] == list(PROTOCOLS)
