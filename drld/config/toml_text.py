"""Writes TOML, which Python's standard library only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


def toml(document: Mapping[str, Any]) -> str:
    """Return a document of tables and arrays of tables as TOML text."""
    lines = [f"{key} = []" for key, value in document.items() if value == []]
    for key, value in document.items():
        tables = value if isinstance(value, list) else [value]
        header = f"[[{key}]]" if isinstance(value, list) else f"[{key}]"
        for table in tables:
            lines += [header, *(_line(name, item) for name, item in table.items()), ""]
    return "\n".join(lines)


def _line(key: str, value: object) -> str:
    return f"{key if _BARE_KEY.fullmatch(key) else json.dumps(key)} = {_inline(value)}"


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_line(key, item) for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    # The strings and numbers of JSON are those of TOML.
    return json.dumps(value)
