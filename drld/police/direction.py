"""The direction in which packets cross an interface."""

from __future__ import annotations

import enum


class Direction(enum.Enum):
    """The direction in which packets cross an interface."""

    IN = "in"
    OUT = "out"
