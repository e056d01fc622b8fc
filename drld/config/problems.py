"""One line for each mistake in a configuration: where it is, what is there, what may be there."""

from __future__ import annotations

import datetime
import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)
_LONGEST_VALUE = 60
_LONGEST_LIST = 600
_SECRET = {"keys", "key", "file", "password_file"}
"""Keys that name secrets, and that people put the secret itself under."""
_USER = re.compile(r"://.*@", re.DOTALL)
"""The part of a URL with the user and the password."""

MOVED = {
    f"limiter.{key}": f"packets.{key}" for key in ("datapath", "firewall", "queue", "timestamps")
}
"""Keys of older files, and where they are now."""

Location = Sequence[int | str]
Origin: TypeAlias = Mapping[str | None, tuple[str, int]]
"""The origin of a limit's table: by key, a file and the index there; None stands for all other
keys."""

_WORDS = (
    ("a valid integer", "an integer"),
    ("a valid number", "a number"),
    ("a valid string", "a text"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "above"),
    ("less than", "below"),
)
"""Pydantic's words for types and bounds, and drld's."""


class PartsError(ValueError):
    """Some elements of an array, or values of a table, cannot be used: the index or key of each,
    and what may stand there."""

    def __init__(self, allowed: Mapping[int, str] | Mapping[str, str]) -> None:
        super().__init__("; ".join(allowed.values()))
        self.allowed = allowed


class Problems:
    """The mistakes found so far in one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: list[str] = []
        self.origins: Sequence[Origin] = ()
        """The origin of each limit, if drop-ins have changed some."""

    def add(self, where: Location, text: str) -> None:
        """Add a mistake, with a text that is a full claim about `where`."""
        file, where = self._origin(where)
        line = f"{dotted(where)}: {text}"
        self.lines.append(f"{file}: {line}" if file else line)

    def name(self, where: Location, beside: Location) -> str:
        """Name a place in a mistake at `beside`: with its file if that is another."""
        file, place = self._origin(where)
        return dotted(place) + (f" of {file}" if file != self._origin(beside)[0] else "")

    def _origin(self, where: Location) -> tuple[str, Location]:
        """The file that a place is in, and the place there."""
        if not self.origins or len(where) < 2 or where[0] != "limit":
            return self.file, where
        _, limit, *rest = where
        assert isinstance(limit, int)
        origin = self.origins[limit]
        key = rest[0] if rest and isinstance(rest[0], str) else None
        file, index = origin.get(key, origin[None])
        return file, ["limit", index, *rest]

    def refuse(self, where: Location, value: object, allowed: str) -> None:
        """Add the mistake that `value` is not what `allowed` describes."""
        self._refuse(where, value, f"must be {allowed}")

    def unknown(self, where: Location, key: str, known: Iterable[str]) -> None:
        """Add an unknown key, with its new place, or a known key that is similar."""
        place = [*where, key]
        new = MOVED.get(dotted(place))
        self.add(place, f"is now {new}" if new else f"unknown key; {hint(key, list(known))}")

    def _refuse(self, where: Location, value: object, claim: str) -> None:
        key = next((part for part in reversed(where) if isinstance(part, str)), "")
        hidden = key in _SECRET and isinstance(value, str)
        self.add(where, f"{claim} (got {'a text' if hidden else show(value)})")

    def include(
        self,
        where: Location,
        model: type[BaseModel],
        error: ValidationError,
        only: Collection[str] | None = None,
    ) -> None:
        """Add each mistake that pydantic found in the table at `where`.

        `only` leaves out the mistakes in other keys of the table.
        """
        for mistake in error.errors(include_url=False):
            location = mistake["loc"]
            # A key that is no text has no location: the mistake is in the table as a whole.
            if only is not None and location and location[0] not in only:
                continue
            if location[-1:] == ("[key]",):  # It is the key, of a table that people name them in.
                location = location[:-1]
            path = [*where, *location]
            if mistake["type"] == "missing":
                self.add(path, "is required")
            elif mistake["type"] == "extra_forbidden":
                self.unknown(path[:-1], str(location[-1]), known_keys(model, location[:-1]))
            elif isinstance(cause := mistake.get("ctx", {}).get("error"), PartsError):
                for part, allowed in cause.allowed.items():
                    self.refuse([*path, part], mistake["input"][part], allowed)
            else:
                self._refuse(path, mistake["input"], _claim(mistake))


def hint(name: str, known: Sequence[str]) -> str:
    """A hint at the known name that the operator may have meant, or at all known names."""
    abbreviated = [other for other in known if name and other.startswith(name)]
    if close := difflib.get_close_matches(name, known, n=1) or abbreviated:
        return f'did you mean "{close[0]}"?'
    return f"known here: {some(known)}" if known else "none is known here"


def must_be(allowed: str, value: object) -> str:
    """Say what may stand where `value` stands."""
    return f"must be {allowed} (got {show(value)})"


def show(value: object) -> str:
    """Write a value of a TOML document shortly and on one line, and no password in a URL."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date | datetime.time):
        return f"the date or time {value}"
    if isinstance(value, int) and value.bit_length() > 64:
        return "an integer beyond 64 bits"
    text = repr(_USER.sub("://...@", value) if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def some(names: Sequence[str]) -> str:
    """The names that fit on a line, and the number of the others: a fleet may have thousands."""
    ends = itertools.accumulate(len(name) + 2 for name in names)
    shown = sum(end <= _LONGEST_LIST for end in ends)
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more else "")


def dotted(where: Location) -> str:
    """Write a location as `limit[0].match.in`."""
    path = ""
    for part in where:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += "." * bool(path) + (part if _BARE_KEY.fullmatch(part) else show(part))
    return path


def _claim(mistake: ErrorDetails) -> str:
    """The claim about a value: in drld's words, or pydantic's."""
    if mistake["type"] == "value_error":
        return f"must be {mistake['ctx']['error']}"
    if mistake["type"] in ("model_type", "dict_type"):
        return "must be a table"
    if mistake["type"] == "list_type":
        return "must be an array"
    bounds = mistake.get("ctx", {})
    if mistake["type"] == "too_short":
        return f"must have {bounds['min_length']} or more elements, not {bounds['actual_length']}"
    if mistake["type"] == "too_long":
        return f"must have {bounds['max_length']} or fewer elements, not {bounds['actual_length']}"
    if mistake["type"].startswith("bool_"):
        return "must be true or false"
    if mistake["type"] == "int_parsing_size":
        return "must be an integer of at most 64 bits"
    claim = re.sub(r"^\w+ should ", "must ", mistake["msg"])
    for words, word in _WORDS:
        claim = claim.replace(words, word)
    return claim


def known_keys(model: type[BaseModel], location: Location) -> list[str]:
    """The keys of the table at `location` inside the table that `model` describes."""
    for part in location:
        if isinstance(part, int):  # in an array, whose elements are all alike
            continue
        field = next(f for name, f in model.model_fields.items() if part in (name, f.alias))
        candidates = get_args(field.annotation) or (field.annotation,)
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return [field.alias or name for name, field in model.model_fields.items()]
