"""The figures of the page."""

from __future__ import annotations

from typing import Literal, TypedDict

from drld.control.schema.limits import LimitReport
from drld.control.schema.peers import Verdict
from drld.control.schema.status import StatusReport


class Told(TypedDict):
    """The value that a peer told about one limit, and that counts here."""

    peer: str
    value: float
    """The value, of the `quantity` of the limit's `fleet`."""
    limiters: int
    """Number of limiters in the sum: in a tree the peer and those behind it. 0: they are
    disconnected, and their demand still counts."""


class MeasuredRate(TypedDict):
    """The rates of one limit at a peer, as the peer reports them, over about a second."""

    peer: str
    """Empty: the sum of those with lower rates."""
    limiters: int
    """Number of limiters in the sum."""
    forwarded_bps: float
    dropped_bps: float


class LiveLimit(LimitReport):
    """One limit as the page shows it."""

    counted_age_s: float
    """Age of the counters: time since the limit's last tick; 0 if it is quiescent."""
    told: list[Told]
    """The values that the neighbours told; empty with `pushsum`, whose peers tell no such
    values."""
    measured: list[MeasuredRate]
    """For the limit to `show`, the rates of peers that answer, the largest first."""


class PeerHealth(TypedDict):
    """A peer as the page shows it: some of `PeerReport`."""

    name: str
    address: str
    connected: bool
    verdict: Verdict
    age_s: float | None


class Event(TypedDict):
    """Something that happened to the daemon or the fleet, and lasts."""

    number: int
    """Counts the daemon's events from 1."""
    t: float
    """Unix time."""
    kind: Literal["daemon", "reload", "change", "peer", "fault"]
    text: str
    """The line of the log."""


class LiveReport(TypedDict):
    """The figures of the page: GET /v1/live."""

    t: float
    """Unix time."""
    status: StatusReport
    matching: int
    """Number of limits whose name contains the text of the search; without a search, of all
    limits."""
    limits: list[LiveLimit]
    """The matching limits with the highest demand as part of their rate, in the configuration's
    order."""
    peers: list[PeerHealth]
    """The first hundred: those that are not well come first."""
    events: list[Event]
    """The last hundred events, or those of them after the number in the request."""
