"""What a plane registers to have a table of its own in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from drld.config.problems import Problems
from drld.config.schema import LimitTable, Table


class Section(NamedTuple):
    """One table, `[key]`, which may be left out. What it asks for is `LimiterSpec.key`."""

    key: str
    table: type[Table]
    spec: Callable[..., Any]
    """Makes it of the table's values, by name."""
    check: Callable[[Any, Sequence[LimitTable | None], Problems], None]
    """See that the table, which is fine by itself, goes with the limits (None: a mistaken one)."""
