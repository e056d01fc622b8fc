"""The charts of messages on the page."""

from __future__ import annotations

from drld.planes.panels import Panel, Panels, Series

PANELS = Panels(
    items="messages",
    panels=(
        Panel(
            "Messages",
            "items",
            (
                Series("arrived_packets", "arrived", "marked"),
                Series("forwarded_packets", "forwarded", "passed"),
                Series("dropped_packets", "dropped", "dropped"),
            ),
        ),
        Panel("Waiting", "level", (Series("waiting", "waiting", "marked"),)),
    ),
    faults={
        "messages_of_clients_beyond_the_bound": "clients had to share a bucket: too many came",
    },
)
