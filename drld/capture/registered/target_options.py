"""The options of `drlctl fleet add-limit` that say which packets fall under a limit."""

from __future__ import annotations

PACKETS: dict[str, tuple[str | None, str | None]] = {
    "in": ("INTERFACE", "Packets that arrive at it."),
    "out": ("INTERFACE", "Packets that leave by it."),
    "source": ("PREFIX", None),
    "destination": ("PREFIX", None),
    "protocol": (None, None),
    "source_port": ("PORT", None),
    "destination_port": ("PORT", None),
    "mark": (None, None),
}
"""For each key of `match`: what stands for its value in the help, and the help."""
