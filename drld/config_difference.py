"""Text about the settings in which a peer's configuration differs (`probes.disagreeing`).

The digest of a limit tells that both limiters differ in it. It does not tell other values there
from no such limit.
"""

from __future__ import annotations

from collections.abc import Collection

GOSSIP = "[gossip]"
_NOT_HERE = " (not here)"
"""How `Engine.disagreements` marks the id of a limit that this limiter lacks."""


def differences(named: Collection[str]) -> str:
    """The limits and the table that differ; while they are not found, that details are pending."""
    here = [name for name in named if name != GOSSIP and not name.endswith(_NOT_HERE)]
    there = [name.removesuffix(_NOT_HERE) for name in named if name.endswith(_NOT_HERE)]
    parts = [f"limits that differ or are missing there: {', '.join(here)}"] if here else []
    parts += [f"limits missing here: {', '.join(there)}"] if there else []
    parts += [f"{GOSSIP}: fabric, branching or interval"] if GOSSIP in named else []
    return "; ".join(parts) or "details pending"
