"""A case of runs from its definition. It imports little (`testbed.harness.case_worker`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

C = TypeVar("C")


def case_of(kind: type[C], definition: Mapping[str, Any]) -> C:
    """The case of a definition (`testbed.harness.case_series.CaseSeries.header`)."""
    # JSON has lists for tuples.
    values: dict[str, Any] = {
        key: tuple(it) if isinstance(it, list) else it for key, it in definition.items()
    }
    values[values.pop("compared")] = values.pop("allocators")
    del values["plane"]
    return kind(**values)
