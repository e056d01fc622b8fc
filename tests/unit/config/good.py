"""A good configuration, and what is said of one that is not."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from drld import config
from drld.errors import ConfigError
from tests.replaced import replaced

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GOOD = """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"

[[peer]]
name = "lim2"
address = "10.0.0.2:7946"

[[limit]]
id = 1
name = "a"
rate = "10mbit"
burst = "400kB"
match = { out = "eth1" }
"""

LIMIT = GOOD[GOOD.index("[[limit]]") :]

changed = partial(replaced, GOOD)
"""The good configuration with the first occurrence of each old text replaced by the new one."""


def with_match(match: str) -> str:
    return changed(('{ out = "eth1" }', f'{{ out = "eth1", {match} }}'))


def with_limit_key(line: str) -> str:
    return changed(("[[limit]]\n", f"[[limit]]\n{line}\n"))


def problems(text: str) -> list[str]:
    return refusal(lambda: config.parse(text, "drld.toml"))


def problems_with(path: str, written: str, beside: str = "") -> list[str]:
    """The errors of the good configuration with this value, and others in its table."""
    document = tomllib.loads(GOOD)
    *tables, key = re.findall(r"\w+", path)
    table: Any = document
    for name in tables:
        table = table[int(name)] if name.isdigit() else table.setdefault(name, {})
    table |= tomllib.loads(beside) | {key: tomllib.loads(f"value = {written}")["value"]}
    return refusal(lambda: config.from_document(document, "drld.toml"))


def refusal(read: Callable[[], object]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read()
    assert all("\n" not in line for line in caught.value.problems)
    return caught.value.problems


def assert_one_line(text: str, line: str) -> None:
    """This is said of it, and nothing else."""
    found = problems(text)
    assert f"drld.toml: {line}" in found
    # A misspelt section is also a missing one; nothing else is said twice.
    rest = [other for other in found if other != f"drld.toml: {line}"]
    assert rest in (
        [],
        [
            "drld.toml: limit: is required: the file must have a [[limit]] table, or limit = [] "
            "for none"
        ],
    )
