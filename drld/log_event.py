"""Events of the log: a stable name and fields, beside the line that people read."""

from __future__ import annotations

from typing import Any


def event(name: str, subject: str = "", **fields: Any) -> dict[str, Any]:
    """The `extra` of a log call, such as `event("peer.state", "lim2", new="dead")`.

    The subject is the thing that the event is about. Of many lines with one event and subject, only
    the first are written, and the number of the others (drld.daemon.log_output). Fields of the same
    meaning have the same name in all events: `limit`, `peer`, `old`, `new`, `reason`.
    """
    return {"event": name, "subject": subject, "fields": fields}


def with_left_out(text: str, left_out: int) -> str:
    """A line that stands for others, too."""
    return f"{text} (left out before it: {left_out})" if left_out else text
