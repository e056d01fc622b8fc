"""A finding: the result of a check, why it matters, and what to do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from drld.control.schema.status import StatusReport
from drld.spec import LimiterSpec


class Level(enum.Enum):
    """The severity of a finding."""

    OK = "ok"
    UNSEEN = "unseen"
    """The check could not look."""
    REMARK = "remark"
    """The fleet's limits hold, and something could be better."""
    WRONG = "wrong"
    """A limit does not hold, is not reached, or will not be after the next event."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check on one object."""

    check: str
    """The object of the check: `gossip port`, `peer lim2`."""
    level: Level
    what: str
    why: str = ""
    do: str = ""
    """A command or an instruction; empty where there is nothing to do."""


def ok(check: str, what: str) -> Finding:
    """Nothing to do."""
    return Finding(check, Level.OK, what)


def unseen(check: str, what: str, do: str) -> Finding:
    """The check could not look; `do` makes it able to."""
    return Finding(check, Level.UNSEEN, what, do=do)


def remark(check: str, what: str, why: str, do: str) -> Finding:
    """The limits hold, and something could be better."""
    return Finding(check, Level.REMARK, what, why, do)


def wrong(check: str, what: str, why: str, do: str) -> Finding:
    """A limit does not hold, or is not reached."""
    return Finding(check, Level.WRONG, what, why, do)


@dataclass(frozen=True, slots=True)
class Examined:
    """Facts that are known before the host is examined; the checks of planes get them."""

    spec: LimiterSpec | None = None
    """The configuration of the files; None: unknown."""
    status: StatusReport | None = None
    """The daemon's report; None: no daemon answers."""
    capabilities: int | None = None
    """Effective capabilities of the daemon as a bit mask; None: unknown."""
    root: bool = False
    """Whether this process may do what a daemon may."""
