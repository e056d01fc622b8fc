"""The reference part of docs/configuration.md, made from the models of the configuration.

    python -m drld.config.reference            write it into the page
    python -m drld.config.reference --check    exit status 1 if the page is out of date

Types, bounds and defaults are those that the models check. The meaning of a key is the docstring
below its field; `docs/PAGE.md` in it becomes a link. A key whose default is not in the model ends
with "Default: ...", except the keys of `[probes]`: their defaults are those of the profiles.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from drld.allocators import ALLOCATORS
from drld.config.fields import Kind
from drld.config.plane_tables import planes
from drld.config.probes import PROFILES
from drld.config.schema import (
    GossipTable,
    HttpTable,
    KeyTable,
    LimiterTable,
    LimitTable,
    PeerTable,
    ProbesTable,
    RegistryTable,
)
from drld.units import format_duration

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
BEGIN = "<!-- Below: written by `python -m drld.config.reference`. -->\n"
END = "<!-- Above: written by `python -m drld.config.reference`. -->\n"
_ALLOCATOR = """
docs/allocators.md has the allocators and which to choose. `allocator = "fair"` has the default
parameters; `allocator = {{ name = "fair", margin = 0.0 }}` sets some of them. The parameters are
the same on all limiters of a fleet. `weights` and `excess = "mark"` act with `fair` alone;
`drld --check` remarks on a limit that has them with another allocator. `ctb` is an error if there
are peers. Allocators without parameters: {names}.
"""
_BOUNDS = {"ge": "{}", "gt": "above {}", "le": "{}", "lt": "below {}"}
_WIDTH = 118


def reference() -> str:
    """The text between the two markers of the page."""
    tables: list[tuple[str, type[BaseModel]]] = [
        ("##", LimiterTable),
        ("##", HttpTable),
        *(("##", plane.element or plane.table) for plane in planes()),
        ("##", GossipTable),
        ("###", KeyTable),
        ("##", ProbesTable),
        ("##", PeerTable),
        ("##", RegistryTable),
        ("##", LimitTable),
        *(("###", table) for plane in planes() for table in (plane.limit, plane.match)),
    ]
    parts = [_table(level, model) for level, model in tables]
    grouped: dict[type[Any], list[str]] = {}
    for name, allocator in ALLOCATORS.items():
        grouped.setdefault(allocator.Parameters, []).append(f"`{name}`")
    without = [name for kind, names in grouped.items() if not _fields(kind) for name in names]
    intro = " ".join(_ALLOCATOR.format(names=", ".join(without)).split())
    parts.append(_section("### `allocator`: how the rate is divided", intro, []))
    parts += [_parameters(kind) for kind in grouped if _fields(kind)]
    return "\n" + "\n".join(parts)


def updated(page: str) -> str:
    """The page with the reference of this code between its markers.

    Raises:
        ValueError: a marker is missing.
    """
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:begin]}{reference()}\n{page[end:]}"


def _table(level: str, model: type[BaseModel]) -> str:
    """The section of one table of the configuration."""
    heading, intro = _docstring(model)
    said = _sentences(model)
    rows = []
    for name, hint in get_type_hints(model, include_extras=True).items():
        field = model.model_fields.get(name)
        if field is None or name not in said:  # of pydantic itself, or of another class
            continue
        meaning, _, stated = said[name].partition(". Default: ")
        if model is ProbesTable and field.default is None:
            default = _of_profiles(name)
        elif stated:
            default = stated
        else:
            default = _default(field, _kind(hint))
        rows.append((field.alias or name, _kind(hint), default, meaning))
    return _section(f"{level} {heading}", intro, rows)


def _parameters(kind: type[Any]) -> str:
    """The section of an allocator's parameters."""
    heading, intro = _docstring(kind)
    said = _sentences(kind)
    hints = get_type_hints(kind, include_extras=True)
    rows = [
        (name, _kind(hints[name]), f"`{json.dumps(default)}`", said[name])
        for name, default in _fields(kind).items()
    ]
    return _section(f"#### {heading}", intro, rows)


def _section(heading: str, intro: str, rows: list[tuple[str, str, str, str]]) -> str:
    lines = [heading, ""]
    if intro:
        wrapper = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += [*wrapper.wrap(_linked(intro)), ""]
    if rows:
        lines += ["| key | type and bounds | default | meaning |", "|---|---|---|---|"]
    lines += [
        f"| `{key}` | {kind} | {default} | {_linked(text)} |" for key, kind, default, text in rows
    ]
    return "\n".join(lines) + "\n"


def _kind(hint: Any) -> str:
    """Type and bounds of a value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        metadata = list(_flat(arguments[1:]))
        told = [item.text for item in metadata if isinstance(item, Kind)]
        # The annotation of an allocator's parameter is its bounds in words.
        worded = [item for item in metadata if isinstance(item, str)]
        if told:
            return told[-1]
        return ", ".join([_kind(arguments[0]), *worded, *_bounds(metadata)])
    if origin is Literal:
        *most, last = (f"`{json.dumps(value)}`" for value in arguments)
        return f"{', '.join(most)} or {last}" if most else last
    if origin is list:
        return f"array of: {_kind(arguments[0])}"
    if origin is dict:
        return f"table; each value: {_kind(arguments[1])}"
    if NoneType in arguments:
        (hint,) = (argument for argument in arguments if argument is not NoneType)
        return _kind(hint)
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "table"
    return {int: "integer", float: "number", bool: "boolean", str: "text"}[hint]


def _bounds(metadata: list[object]) -> list[str]:
    """The bounds in pydantic's metadata: "1 to 65535", "0 to below 1", "up to 1000"."""
    found = {
        key: getattr(item, key)
        for item in metadata
        for key in ("ge", "gt", "le", "lt", "min_length", "max_length")
        if hasattr(item, key)
    }
    sizes = [found[key] for key in ("min_length", "max_length") if key in found]
    if sizes:
        return [f"{'up to ' if len(sizes) == 1 else ''}{' to '.join(map(str, sizes))} of them"]
    values = [phrase.format(found[key]) for key, phrase in _BOUNDS.items() if key in found]
    return [" to ".join(values)] if values else []


def _flat(metadata: tuple[object, ...]) -> Iterator[object]:
    for item in metadata:
        yield from item.metadata if isinstance(item, FieldInfo) else (item,)


def _default(field: FieldInfo, kind: str) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, int) and kind.startswith("duration"):
        value = format_duration(value)
    if not isinstance(value, (str, int, float)):
        raise TypeError(f"{field!r}: the docstring must end with its default")
    return f"`{json.dumps(value)}`"


def _of_profiles(name: str) -> str:
    """A probe key's default in each profile, once if they agree."""
    spec = {field.name: field for field in dataclasses.fields(PROFILES["lan"])}
    found: dict[str, str] = {}
    for profile, values in PROFILES.items():
        field = name if name in spec else f"{name}_ns"
        value = getattr(values, field)
        shown = json.dumps(format_duration(value) if field.endswith("_ns") else value)
        found.setdefault(shown, profile)
    first, *others = found
    return "; ".join([f"`{first}`", *(f"{found[other]} `{other}`" for other in others)])


def _fields(kind: type[Any]) -> Mapping[str, Any]:
    """Parameters of an allocator, and their defaults."""
    return {field.name: field.default for field in dataclasses.fields(kind)}


def _docstring(kind: type[Any]) -> tuple[str, str]:
    """The heading that a class's docstring begins with, and the rest as one paragraph."""
    heading, _, rest = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")
    return heading.removesuffix("."), " ".join(rest.split())


def _sentences(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field, on one line and without its full stop."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(ast.literal_eval(text.value).split()).removesuffix(
                "."
            )
    return found


def _linked(text: str) -> str:
    """Make links of the documents that a text names."""
    return re.sub(r"docs/([\w-]+\.md)(#[\w-]+)?", r"[\1](\1\2)", text)


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it."""
    page = PAGE.read_text(encoding="utf-8")
    new = updated(page)
    if arguments == ["--check"]:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
