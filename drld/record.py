"""Records: dataclasses that are frozen for the type checker, and cost little to make.

A dataclass that is frozen at run time sets each of its fields by a call, so it takes four times as
long to make. A tick makes about ten records for each limit. So the records of a tick are frozen by
mypy, which checks all of drld, and hashed by their fields as frozen dataclasses are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    def record(*, frozen: bool, slots: bool) -> object:
        """Make a dataclass that is frozen for the type checker only."""
        return dataclass(slots=slots, unsafe_hash=frozen)


__all__ = ["record"]
