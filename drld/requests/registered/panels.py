"""The panels of requests on the page."""

from __future__ import annotations

from drld.planes.panels import Panel, Panels, Series

PANELS = Panels(
    items="requests",
    panels=(
        Panel(
            "Requests",
            "items",
            (
                Series("forwarded_packets", "admitted", "passed"),
                Series("dropped_packets", "refused", "dropped"),
            ),
        ),
    ),
    faults={
        "requests_oversized": "requests above the burst of a limit were refused",
        "requests_unmatched": "requests under no limit were admitted",
        "requests_overridden": "limits in requests of Envoy were ignored: drld's own apply",
    },
)
