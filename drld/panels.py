"""Panels of the page: charts of a limit that a plane registers as data (drld.planes).

A plane names figures of its limits' reports (`drld.control.schema.LiveLimit`), and the page draws
them. So a plane adds a chart without a line of JavaScript.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Series(NamedTuple):
    """A line of a chart."""

    key: str
    """Of the limit's report: a counter, of which the page shows the rate; in a panel of levels, a
    number of its `waits`, which is shown as it is."""
    label: str
    tone: Literal["passed", "marked", "dropped"]
    """What it means for the traffic: decides its colour and pattern."""


class Panel(NamedTuple):
    """A chart of the limits of one plane."""

    title: str
    counts: Literal["unit", "items", "level"]
    """What the series count: the limit's unit (bytes are shown as bit/s), or its items; or the
    present number of items."""
    series: tuple[Series, ...]


class Panels(NamedTuple):
    """What a plane shows on the page."""

    items: str
    """What its limits count (`Target.items`): tells which limits are its own."""
    panels: tuple[Panel, ...]
    faults: Mapping[str, str]
    """By name of a counter of its datapath, what has happened when it counts on."""
