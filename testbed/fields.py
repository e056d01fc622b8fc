"""The kinds of values that an experiment's tables hold, each with what its mistakes are told.

Units as in drld: rates bytes/s, sizes bytes, times nanoseconds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from drld import units
from drld.config.fields import Rate

_LONGEST_NAME = 11
"""Interface names have 15 characters, and some of ours begin with `in-`."""
_NAME = rf"[a-z][a-z0-9_-]{{0,{_LONGEST_NAME - 1}}}"


def duration(value: object) -> int:
    """Nanoseconds; ValueError with what may stand there."""
    if not isinstance(value, str):
        raise ValueError('a duration such as "50ms" or "1.5s"')
    try:
        return units.parse_duration(value)
    except units.QuantityError as error:
        raise ValueError(error.allowed) from None


def _size(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError('a size such as "15kB"')
    try:
        return units.parse_size(value)
    except units.QuantityError as error:
        raise ValueError(error.allowed) from None


Duration = Annotated[int, PlainValidator(duration)]
Size = Annotated[int, PlainValidator(_size)]
Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Table(BaseModel):
    """A table that knows all its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PathTable(Table):
    """Traffic from one source through one limiter."""

    name: Name | None = None
    limiter: Name
    rtt: Duration
    loss: Probability = 0.0
    rate: Rate | None = None
    """Of an upstream bottleneck."""
    queue: Size | None = None
