"""Panels of the page: charts of a limit that a plane registers as data (drld.planes).

A plane names figures of its limits' reports (`drld.control.schema.live.LiveLimit`), and the page
draws them. So a plane adds a chart without a line of JavaScript.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Series(NamedTuple):
    """A line of a chart."""

    key: str
    """Key of the limit's report: a counter, whose rate the page shows. In a panel of levels, a
    number of `waits`, which the page shows as it is."""
    label: str
    tone: Literal["passed", "marked", "dropped"]
    """The fate of the traffic; it decides the colour and the pattern."""


class Panel(NamedTuple):
    """A chart of the limits of one plane."""

    title: str
    counts: Literal["unit", "items", "level"]
    """The unit of the series: the limit's unit (bytes are shown as bit/s), its items, or the
    present number of items."""
    series: tuple[Series, ...]


class Panels(NamedTuple):
    """The charts of a plane on the page."""

    items: str
    """The items of its limits (`Target.items`), by which the page knows these limits."""
    panels: tuple[Panel, ...]
    faults: Mapping[str, str]
    """For each counter of its datapath, the fault that has happened when the counter rises."""
