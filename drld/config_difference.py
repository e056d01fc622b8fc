"""Text about the settings in which a peer's configuration differs (`probes.disagreeing`)."""

from __future__ import annotations

from collections.abc import Collection

GOSSIP = "[gossip]"
"""The name of the fabric's settings, in lists that otherwise name limits."""
NOT_HERE = " (not here)"
"""The mark behind the id of a limit that this limiter lacks."""
NOT_THERE = " (not there)"
"""The mark behind the name of a limit that the peer lacks."""


def differences(named: Collection[str]) -> str:
    """Return a text that lists the limits and the table that differ; if `named` is empty, the peers
    have not found them yet, and the text says that details are pending."""
    marked = (GOSSIP, NOT_HERE, NOT_THERE)
    parts = []
    if both := [name for name in named if not name.endswith(marked)]:
        parts.append(f"limits that differ: {', '.join(both)}")
    for where, mark, of_id in (("there", NOT_THERE, ""), ("here", NOT_HERE, "id ")):
        if missing := [of_id + name.removesuffix(mark) for name in named if name.endswith(mark)]:
            parts.append(f"limits missing {where}: {', '.join(missing)}")
    parts += [f"{GOSSIP}: fabric, branching or interval"] if GOSSIP in named else []
    return "; ".join(parts) or "details pending"
