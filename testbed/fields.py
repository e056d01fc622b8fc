"""The kinds of values that an experiment's tables hold, each with what its mistakes are told.

Units as in drld: rates bytes/s, sizes bytes, times nanoseconds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from drld import units
from drld.config.fields import Rate, quantity

_LONGEST_NAME = 11
"""Interface names have 15 characters, and some of ours begin with `in-`."""
_NAME = rf"[a-z][a-z0-9_-]{{0,{_LONGEST_NAME - 1}}}"


duration = quantity(units.parse_duration, 'a duration such as "50ms" or "1.5s"')
"""Nanoseconds; ValueError with what may stand there."""
Duration = Annotated[int, PlainValidator(duration)]
Size = Annotated[int, PlainValidator(quantity(units.parse_size, 'a size such as "15kB"'))]
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
