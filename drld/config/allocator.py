"""The `allocator` key of a limit: a name, or a table of a name and that allocator's parameters.

The parameters' keys, types and defaults are those of the allocator's `Parameters` dataclass, so a
new allocator needs no line here.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError, create_model

from drld.allocators import ALLOCATORS
from drld.config.problems import Location, Problems
from drld.config.schema import Table


def read_allocator(where: Location, value: object, problems: Problems) -> tuple[str, Any] | None:
    """Return the allocator's name and `Parameters`; None where `problems` now says why not."""
    table = value if isinstance(value, dict) else {"name": value}
    at_name = [*where, "name"] if isinstance(value, dict) else where
    if "name" not in table:
        problems.add(at_name, "is required")
        return None
    name = table["name"]
    if not isinstance(name, str) or name not in ALLOCATORS:
        problems.refuse(at_name, name, f"an allocator: one of {', '.join(ALLOCATORS)}")
        return None
    model = _parameters_table(name)
    try:
        given = model.model_validate({key: item for key, item in table.items() if key != "name"})
    except ValidationError as error:
        problems.include(where, model, error)
        return None
    try:
        return name, _parameters(name, tuple(given.model_dump().items()))
    except ValueError as error:
        # The contract: the message begins with the parameter's name.
        parameter, _, text = str(error).partition(": ")
        problems.add([*where, parameter], text)
        return None


@functools.lru_cache(256)
def _parameters(name: str, given: tuple[tuple[str, object], ...]) -> object:
    """Make an allocator's parameters; ten thousand limits have few different ones."""
    return ALLOCATORS[name].Parameters(**dict(given))


@functools.cache
def _parameters_table(name: str) -> type[BaseModel]:
    """Make the model of an `allocator` table from the allocator's `Parameters`."""
    parameters = ALLOCATORS[name].Parameters
    hints = get_type_hints(parameters)
    fields: dict[str, Any] = {
        field.name: (hints[field.name], field.default) for field in dataclasses.fields(parameters)
    }
    return create_model(f"{parameters.__name__}Table", __base__=Table, **fields)
