"""The options of `drlctl limit` that say which packets fall under a limit."""

from __future__ import annotations

OPTIONS: dict[str, tuple[str | None, str | None]] = {
    "in": ("INTERFACE", "Packets that arrive at it."),
    "out": ("INTERFACE", "Packets that leave by it."),
    "source": ("PREFIX", None),
    "destination": ("PREFIX", None),
    "protocol": (None, None),
    "source_port": ("PORT", None),
    "destination_port": ("PORT", None),
    "mark": (None, None),
}
"""By key of `match`: the placeholder of its value in the help, and the help text."""
