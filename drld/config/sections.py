"""Reads values of a document as tables: one `[key]`, or several `[[key]]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from drld.config.problems import Location, Problems
from drld.config.schema import Table

T = TypeVar("T", bound=Table)


def read_section(key: str, model: type[T], value: object, problems: Problems) -> T | None:
    """Read the value of `key` as the table `[key]`; None if it has a mistake."""
    if value is None:
        problems.add([key], f"is required: the file must have a [{key}] table")
        return None
    if not isinstance(value, dict):
        problems.refuse([key], value, f"one table, [{key}]")
        return None
    return read_table(model, [key], value, problems)


def read_sections(
    key: str,
    read: Callable[[Location, object, Problems], T | None],
    value: object,
    problems: Problems,
) -> list[tuple[object, T | None]]:
    """Read the value of `key` as the tables `[[key]]`, each by `read`.

    Returns:
        For each table what the file has, and the table, or None if it has a mistake.
    """
    if value is None:
        problems.add(
            [key], f"is required: the file must have a [[{key}]] table, or {key} = [] for none"
        )
        return []
    if not isinstance(value, list):
        problems.refuse([key], value, array_of_tables(key))
        return []
    return [(item, read([key, index], item, problems)) for index, item in enumerate(value)]


def read_table(model: type[T], where: Location, value: object, problems: Problems) -> T | None:
    """Read a value as a table; None if it has a mistake."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems.include(where, model, error)
        return None


def array_of_tables(key: str) -> str:
    """The words for an array of tables in a claim."""
    return f"an array of tables: [[{key}]], with two brackets"
