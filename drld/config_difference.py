"""Text about the settings in which a peer's configuration differs (`probes.disagreeing`).

The digest of a limit shows that the two limiters differ in it. It does not show whether the peer
has other values or no such limit.
"""

from __future__ import annotations

from collections.abc import Collection

GOSSIP = "[gossip]"
"""The name of the fabric's settings, in lists that otherwise name limits."""
NOT_HERE = " (not here)"
"""The mark behind the id of a limit that this limiter lacks."""


def differences(named: Collection[str]) -> str:
    """Return a text that lists the limits and the table that differ; if `named` is empty, the peers
    have not found them yet, and the text says that details are pending."""
    here = [name for name in named if name != GOSSIP and not name.endswith(NOT_HERE)]
    there = [name.removesuffix(NOT_HERE) for name in named if name.endswith(NOT_HERE)]
    parts = [f"limits that differ or are missing there: {', '.join(here)}"] if here else []
    parts += [f"limits missing here: {', '.join(there)}"] if there else []
    parts += [f"{GOSSIP}: fabric, branching or interval"] if GOSSIP in named else []
    return "; ".join(parts) or "details pending"
