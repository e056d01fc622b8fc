"""The log lines about a change of limits through the control API."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from drld.config.changes import Configuration
from drld.daemon.event_log import EventLog
from drld.limit_values import changed_limits
from drld.log_event import event
from drld.reload import Difference, differences, tables
from drld.shared_settings import shared_settings

log = logging.getLogger("drld")


def changes(before: Configuration, after: Configuration) -> list[Difference]:
    """The tables that differ. To find them in 10,000 takes long: it is no work for the loop."""
    return differences(tables(before.document()), tables(after.document()))


def log_changes(found: Iterable[Difference], events: EventLog, *, saved: bool) -> None:
    """Log each table that differs."""
    lasts = "saved" if saved else "until a restart or a reload"
    for it in found:
        keys = ", ".join(
            f"{key}: {new!r}" if it.change == "added" else f"{key}: {_value(old)} -> {_value(new)}"
            for key, (old, new) in it.keys.items()
            if it.change != "removed"
        )
        line = f"{it.table} {it.change} ({lasts}){': ' if keys else ''}{keys}"
        fields = {
            "limit": it.table.removeprefix("limit "),
            "change": it.change,
            "old": {key: old for key, (old, _) in it.keys.items()},
            "new": {key: new for key, (_, new) in it.keys.items()},
            "saved": saved,
        }
        log.info("%s", line, extra=event("limit.changed", it.table, **fields))
        events.add("change", line)


def _value(value: Any) -> str:
    """A value of a file, in the words of `drlctl`."""
    return "(left out)" if value is None else repr(value)


def differs_for_peers(before: Configuration, after: Configuration) -> bool:
    """Whether settings of limits differ that all limiters of the fleet must share."""
    # The settings of all of 10,000 limits take longer than the change.
    found = changed_limits(before.in_force.limits, after.in_force.limits)
    gossip = after.in_force.gossip
    old, new = (
        shared_settings((limit.policy for limit in limits if limit), gossip)
        for limits in ((it.old for it in found), (it.new for it in found))
    )
    return old != new
