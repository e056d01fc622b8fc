"""Changes during a run: `[[events]]` of an experiment, one by one and in order.

Each entry of the file is one action: change a group's link, change the limit, kill a limiter's
daemon, or start it again. With a `period` the action is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator

from drld import units
from drld.config.fields import Rate
from drld.config.problems import Problems
from testbed.fields import Duration, Name, Size, Table

ACTIONS = ("flows", "limit", "kill", "start")
"""An entry has exactly one of these keys."""


def _rate_or_none(value: object) -> int | None:
    if value == "none":
        return None
    try:
        return units.parse_rate(value if isinstance(value, str) else "")
    except units.QuantityError:
        raise ValueError('a rate such as "2mbit", or "none" for no limit') from None


class EventTable(Table):
    """An entry of `[[events]]`."""

    at: Duration
    period: Duration | None = None
    flows: Name | None = None
    """The group whose link gets another `rate` and `queue`."""
    rate: Annotated[int | None, PlainValidator(_rate_or_none)] = None
    queue: Size | None = None
    limit: Rate | None = None
    """The limit's new rate, by a reload of all daemons."""
    kill: Name | None = None
    """The limiter whose daemon gets a SIGKILL."""
    start: Name | None = None
    """The limiter whose daemon, killed before, is started again."""


@dataclass(frozen=True, slots=True)
class Event:
    """An action of the run, and its time."""

    at_ns: int
    """Time of the event, from the start of the run."""
    do: EventTable


def schedule(tables: Sequence[EventTable], duration_ns: int) -> list[Event]:
    """All events of a run, in the order of time."""
    events = [
        Event(at_ns, table)
        for table in tables
        for at_ns in range(table.at, duration_ns, table.period or duration_ns)
    ]
    return sorted(events, key=lambda event: event.at_ns)


def check(
    tables: Sequence[EventTable],
    groups: Sequence[str],
    limiters: Sequence[str],
    duration_ns: int,
    problems: Problems,
) -> None:
    """Report mistakes in the entries and in their order."""
    for index, table in enumerate(tables):
        where: list[int | str] = ["events", index]
        given = [key for key in ACTIONS if getattr(table, key) is not None]
        if len(given) != 1:
            problems.add(where, f"exactly one of {', '.join(ACTIONS)}, and not {len(given)}")
        if table.flows is not None and table.flows not in groups:
            problems.refuse([*where, "flows"], table.flows, f"one of {', '.join(sorted(groups))}")
        if (table.flows is not None) != ("rate" in table.model_fields_set):
            problems.add([*where, "rate"], "goes with `flows`, the group whose link it is")
        if table.queue is not None and not table.rate:
            problems.add([*where, "queue"], "means nothing without a `rate`")
        for key in ("kill", "start"):
            limiter = getattr(table, key)
            if limiter is not None and limiter not in limiters:
                problems.refuse([*where, key], limiter, f"one of {', '.join(limiters)}")
        if table.period == 0:
            problems.refuse([*where, "period"], "0s", "longer than nothing")
            return
    _check_lives(tables, duration_ns, problems)


def _check_lives(tables: Sequence[EventTable], duration_ns: int, problems: Problems) -> None:
    """Check that only living daemons are killed, and only dead ones started."""
    dead: set[str] = set()
    for event in schedule(tables, duration_ns):
        where: list[int | str] = ["events", tables.index(event.do)]
        at = f"at {event.at_ns / 1e9:g} s"
        if event.do.kill is not None:
            if event.do.kill in dead:
                problems.add([*where, "kill"], f"{event.do.kill} is dead already {at}")
                return
            dead.add(event.do.kill)
        if event.do.start is not None:
            if event.do.start not in dead:
                problems.add([*where, "start"], f"{event.do.start} was not killed {at}")
                return
            dead.discard(event.do.start)
