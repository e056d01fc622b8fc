"""The types of values in an experiment's tables, each with the text of its errors.

Units as in drld: rates bytes/s, sizes bytes, times nanoseconds.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from drld import units
from drld.config.fields import Rate, quantity

LONGEST_NAME = 11
"""Interface names have 15 characters, and some of ours begin with `in-`."""
_NAME = rf"[a-z][a-z0-9_-]{{0,{LONGEST_NAME - 1}}}"
_RANGE = re.compile(r"([a-z][a-z_-]{0,4})([1-9][0-9]{0,4})\.\.([a-z][a-z_-]{0,4})([1-9][0-9]{0,4})")


duration = quantity(units.parse_duration, 'a duration such as "50ms" or "1.5s"')
"""Nanoseconds; a ValueError names the allowed values."""
Duration = Annotated[int, PlainValidator(duration)]
Size = Annotated[int, PlainValidator(quantity(units.parse_size, 'a size such as "15kB"'))]
Name = Annotated[str, Field(pattern=rf"^{_NAME}$")]


def _places(value: object) -> str:
    if isinstance(value, str):
        if re.fullmatch(_NAME, value):
            return value
        found = _RANGE.fullmatch(value)
        if found is not None and int(found[2]) <= int(found[4]) and found[1] == found[3]:
            return value
    raise ValueError('a name of up to 11 characters such as "l1", or several such as "l1..l40"')


def places(value: str) -> list[str]:
    """The names in a value of `Places`."""
    found = _RANGE.fullmatch(value)
    if found is None:
        return [value]
    return [f"{found[1]}{number}" for number in range(int(found[2]), int(found[4]) + 1)]


def spread_out(name: str, where: str) -> list[tuple[str, str]]:
    """Names and limiters of groups: one group, or one for each of several limiters."""
    limiters = places(where)
    if len(limiters) == 1:
        return [(name, limiters[0])]
    return [(f"{name}-{limiter}", limiter) for limiter in limiters]


Places = Annotated[str, PlainValidator(_places)]
"""The name of a limiter, or of several numbered ones: "l1..l40"."""
Probability = Annotated[float, Field(ge=0, lt=1)]


class Table(BaseModel):
    """A table that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PathTable(Table):
    """Traffic from one source through one limiter."""

    name: Name | None = None
    limiter: Name
    rtt: Duration
    loss: Probability = 0.0
    rate: Rate | None = None
    """Rate of an upstream bottleneck."""
    queue: Size | None = None
