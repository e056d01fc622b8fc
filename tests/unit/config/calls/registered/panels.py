"""The chart of the plane of calls."""

from drld.planes.panels import Panel, Panels, Series

PANELS = Panels(
    items="calls",
    panels=(Panel("Refused", "unit", (Series("dropped_bytes", "refused", "dropped"),)),),
    faults={"lost": "callers were cut off"},
)
