"""The charts of packets on the page."""

from __future__ import annotations

from drld.planes.panels import Panel, Panels, Series

PANELS = Panels(
    items="packets",
    panels=(
        Panel(
            "Above the limit",
            "unit",
            (
                Series("dropped_bytes", "dropped", "dropped"),
                Series("marked_bytes", "marked (ECN)", "marked"),
            ),
        ),
        Panel(
            "Packets",
            "items",
            (
                Series("forwarded_packets", "forwarded", "passed"),
                Series("dropped_packets", "dropped", "dropped"),
            ),
        ),
    ),
    faults={
        "overflow": "the packet queue overflowed",
        "errors": "packets could not be judged",
        "reattached": "a program or rules were missing, and were put back",
    },
)
