"""Limits, and their traffic."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

SortKey: TypeAlias = Literal["demand", "excess", "pressure", "rate", "name"]
"""Sort keys of `GET /v1/limits`. `excess` is the demand above the local limit, `pressure` the
demand over the limit's rate."""


class FleetView(TypedDict):
    """The knowledge that the fleet shares about one limit."""

    quantity: Literal["rate", "weight"]
    """`rate`: `local` and `remote` are bits/s. `weight`: they are flow weights."""
    local: float
    remote: float
    """Sum over the other connected limiters."""
    connected: list[str]
    unnamed: int
    """Connected limiters beyond those in `connected`, with names that this one does not know."""
    age_s: float | None
    """Age of the oldest estimate in `remote`; None: no estimate was received."""


class WaitsReport(TypedDict):
    """Items of a limit that wait for its tokens, and that have waited."""

    waiting: int
    """Items that wait now; in shadow mode, items that would wait."""
    waited: int
    p50_s: float
    """Access delay: from the arrival of an item until its tokens were there, over the last minute;
    the median, and the next two quantiles."""
    p95_s: float
    p99_s: float
    clients: int | None
    """Clients with a bucket of their own; None: one bucket is for all."""


class OverrideReport(TypedDict):
    """One key of a limit with a rate and a burst of its own."""

    key: list[str]
    """A value for each name of `match.per`."""
    rate_bps: float
    burst_bytes: float


class LimitReport(TypedDict):
    """One limit: GET /v1/limits (a list) and /v1/limits/NAME."""

    id: int
    name: str
    allocator: str
    mode: str
    on_failure: str
    excess: str
    """A word of the limit's plane: `drop` or `mark` for packets."""
    unsaved: list[str]
    """Keys that a restart or a reload reverts."""
    unit: str
    """The unit of the rates and sizes of this report: `bytes`, or the name of another unit's
    item."""
    items: str
    """The noun for the items that `arrived_packets` and the like count: `packets`."""
    rate_bps: float
    burst_bytes: float
    burst_is_automatic: bool
    """`burst_bytes` follows from the rate."""
    interval_s: float
    weights: dict[str, float]
    """Relative weight of limiters' flows, by name; limiters not named have 1."""
    match: dict[str, Any]
    """The keys of `match`, which say what traffic the limit covers."""
    overrides: list[OverrideReport]
    """Keys with a rate and burst of their own, the first ones."""
    overrides_in_all: int
    """The number of such keys."""
    flow: str
    """The definition of a flow: for packets `5-tuple`, or `source/V4/V6` with prefix lengths."""
    limit_in_force_bps: float
    """The global limit less the shares of disconnected limiters."""
    demand_bps: float
    fleet: FleetView
    local_limit_bps: float | None
    """The local limit; None: the allocator has none."""
    drop_probability: float
    fill_rate_bps: float
    """Negative where the bucket drains."""
    depth_bytes: float | None
    """The depth of the bucket; None: the limit has no bucket."""
    arrived_bytes: float
    arrived_packets: int
    forwarded_bytes: float
    forwarded_packets: int
    dropped_bytes: float
    dropped_packets: int
    marked_bytes: float
    """Forwarded with a congestion mark; part of `forwarded_bytes`."""
    marked_packets: int
    flows: int
    """Flows in the sample."""
    waits: WaitsReport | None
    """Waiting items; None: items of this limit never wait."""


class SuggestionReport(TypedDict):
    """GET /v1/limits/NAME/suggestion: a rate and a burst, from what arrived here."""

    limit: str
    unit: str
    rate_bps: float
    burst_bytes: float
    part: float
    """Part of the seconds with traffic that did not exceed the rate."""
    seconds: int
    """Seconds with traffic."""
    seen_s: float
    """Time since the first traffic in mode shadow or pause."""
    interval_s: float
    """Interval of the counts: the burst is exact to two intervals of the rate."""


class TraceRecord(TypedDict):
    """One tick of one limit: a line of GET /v1/limits/NAME/trace."""

    t: float
    """Unix time of the tick."""
    limit: str
    unit: str
    arrived_bps: float
    """Rate over the last interval alone, as the next two."""
    forwarded_bps: float
    dropped_bps: float
    demand_bps: float
    local: float
    remote: float
    limit_in_force_bps: float
    local_limit_bps: float | None
    drop_probability: float
    fill_rate_bps: float
    depth_bytes: float | None
    flows: int


class TraceLine(TraceRecord):
    """A record as one reader gets it."""

    number: int
    """Number of this reader's record, from 0; a gap stands for records that the reader was too slow
    to get."""
