"""Whatever stands at a key of the example files, an error names the key and is a full claim."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from drld import config
from drld.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WRONG: tuple[Any, ...] = (
    -7,
    10**30,
    1.5,
    float("nan"),
    "zz",
    "",
    "a\0b",
    "x" * 5000,
    True,
    [],
    [1],
    {},
    {"x": 1},
)
CLAIM = re.compile(
    r"f: ([a-z_]+)(\[\d+\]|\.(\w+|'.*?'))*: "
    r"(must (?!.*\bvalid\b)|is required|\w+ is not a limiter"
    r"|unknown key; (did you mean|known here))"
)
EXAMPLES = sorted((Path(__file__).parents[3] / "docs").glob("*.example.toml"))


def documents(path: Path) -> Iterator[tuple[str, Any]]:
    """The example with one wrong, missing or unknown thing each, and the place of that thing."""
    example = tomllib.loads(path.read_text().replace('keys = [{ id = 1, file = "/etc/', "# "))

    def walk(node: Any, place: str) -> Iterator[tuple[str, Any]]:
        parts = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        for key, old in parts:
            for wrong in WRONG:
                node[key] = wrong
                yield f"{place} {key}", example
            node[key] = old
            if isinstance(node, dict):
                del node[key]
                yield f"{place} {key}", example
                node[key] = old
            if isinstance(old, dict | list):
                yield from walk(old, f"{place} {key}")
        if isinstance(node, dict):
            node["zzz"] = 1
            yield f"{place} zzz", example
            del node["zzz"]

    return walk(example, "")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda it: it.name)
def test_an_error_of_any_key_is_a_full_claim(path: Path) -> None:
    refusals = 0
    for place, document in documents(path):
        claims = claims_about(document)
        assert [it for it in claims if not CLAIM.match(it)] == [], place
        refusals += bool(claims)
    assert refusals > 100


def claims_about(document: Any) -> list[str]:
    try:
        config.from_document(deepcopy(document), "f")
    except ConfigError as error:
        return error.problems
    return []
