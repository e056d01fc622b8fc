"""The JSON of the control API (docs/control-api.md), shared by the daemon and drlctl.

Rates are bits/s (as operators write them), sizes bytes, times seconds. Of a limit whose `unit` is
not `bytes`, rates are items/s and sizes items, although the keys say `_bps` and `_bytes`. Counters
count since the daemon started. This module imports nothing but typing: drlctl starts fast.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

Verdict: TypeAlias = Literal["alive", "suspect", "dead", "left", "unknown"]
SortKey: TypeAlias = Literal["demand", "excess", "pressure", "rate", "name"]
"""Sort keys of `GET /v1/limits`. `excess` is the demand above the local limit, `pressure` the
demand over the limit's rate."""


class DatapathReport(TypedDict):
    """The datapath for packets."""

    name: str
    reason: str
    """Why this datapath was chosen."""
    firewall: str
    queue: int | None
    counters: dict[str, int]
    """Counts of faults; with nfqueue also the packets by the source of their arrival times."""


class TicksReport(TypedDict):
    """The daemon's ticks since its start."""

    run: int
    late: int
    """Ticks that began more than half a round after they were due."""


class FabricReport(TypedDict):
    """The communication fabric."""

    name: str
    branching: int
    interval_s: float


class PeerCounts(TypedDict):
    """Numbers of limiters, this one not counted."""

    configured: int
    connected: int


class ProbesReport(TypedDict):
    """The verdicts of probes on the fleet, this limiter not counted."""

    alive: int
    suspect: int
    dead: int
    left: int
    unknown: int
    """Limiters that this one has never heard from."""
    isolated: bool
    """Nobody answers this limiter's probes."""
    awareness: int
    """This limiter's doubt in itself: it waits so many times longer for answers."""
    disagreeing: dict[str, list[str]]
    """Limiters that have other limits, and the names of those that differ, as far as found."""


class GossipReport(TypedDict):
    """The traffic of the gossip socket."""

    sent: int
    """Updates."""
    received: int
    """Updates of peers, those included that came late or again."""
    bytes_sent: int
    control_sent: int
    """Probes and acknowledgements."""
    control_received: int
    handshakes: int
    """HELLOs sent."""
    greetings: int
    """HELLOs received."""
    sessions: int
    """Times that a life of a peer was met."""
    floods: int
    """Ticks in which so much was refused that the rest had to wait for the next."""
    rejected: dict[str, int]
    """Datagrams refused, and updates that came again, by reason; those that came late are with the
    peers."""
    errors: dict[str, int]
    """Datagrams that the socket would not send or receive, by the name of the error (errno)."""


class KeyReport(TypedDict):
    """A key of the ring; never the key itself."""

    id: int
    fingerprint: str
    """The same for the same key."""
    in_use: bool
    """Whether this key seals the datagrams that are sent."""


class KeysReport(TypedDict):
    """The keys in force: GET /v1/keys."""

    use: int
    """Id of the key that seals what is sent; 0 is none."""
    tag_bytes: int
    """Length of an update's tag."""
    accept_unauthenticated: bool
    """Whether what is sealed with no key is taken, too."""
    keys: list[KeyReport]
    as_configured: bool
    """Whether these are the keys of the configuration file, as it was read last."""


class ConfigReport(TypedDict):
    """The configuration in force."""

    file: str
    loaded_at: float
    """Unix time."""
    reload_error: str | None
    """Why the last reload was refused; None after one that was not."""
    unsaved: list[str]
    """Limits with changes that a restart or a reload reverts."""
    dropped: list[str]
    """Limits with unsaved changes that the last reload has reverted."""
    certificate_expires_at: float | None
    """Unix time, of http.certificate; None without one."""


class Difference(TypedDict):
    """The effect of a change of the configuration on one of its tables."""

    table: str
    """`limiter`, or with a name, as in `limit customer-a`."""
    change: Literal["added", "removed", "changed"]
    keys: dict[str, list[Any]]
    """The old and the new value of each key, as in a file; null: the key is left out."""


class ChangeReport(TypedDict):
    """The effect of a change of limits: POST /v1/limits and below."""

    changes: list[Difference]
    saved: str | None
    """The file that a restart reads the change from; None: a restart or a reload reverts it."""
    needed_at: list[str]
    """Peers that must agree on what has changed, and need the same change."""


class ConfigTable(TypedDict):
    """A table of the configuration in force: GET /v1/config (a list)."""

    kind: str
    """Name of the table, such as `limiter` or `limit`."""
    values: dict[str, Any]
    """Values as in the file, with the changes of drop-ins and unsaved ones."""


class RegistryReport(TypedDict):
    """The fleet's registry in etcd, as this limiter knows it."""

    fleet: str
    state: Literal["waiting", "connected", "unreachable"]
    """`waiting`: the daemon has never known the fleet, and enforces nothing until it does."""
    since: float
    """Unix time at which `state` began."""
    endpoint: str | None
    """The etcd server in use."""
    error: str | None
    """Why none is, or was last."""
    revision: int
    """Revision of the registry that is in force here."""
    members: int
    """Limiters that this one counts, itself included."""
    limits: int
    """Limits that the registry has."""
    joined: bool
    """False: this limiter enforces its static share until all members count it."""
    waiting_for: list[str]
    """Members that are not known to count it; a few of them."""
    lost: int
    """Members and limits that etcd has lost: they are in force, and are put there again."""
    problems: dict[str, str]
    """Keys of etcd whose value is not in force here, and why; a few of them."""
    problem_count: int
    rejected: int
    """Values that were not used since the daemon started."""
    cache_error: str | None
    """Why what the registry says cannot be written to disk."""


class StatusReport(TypedDict):
    """The daemon as a whole: GET /v1/status."""

    name: str
    version: str
    pid: int
    uptime_s: float
    ticks: TicksReport
    ready: bool
    datapath: DatapathReport
    fabric: FabricReport
    peers: PeerCounts
    probes: ProbesReport | None
    """The verdicts of probes; None: probes are off."""
    limits: int
    gossip: GossipReport
    deltas: GossipReport | None
    """The second socket, for limits with a bucket for each key; `control_*` count its messages.
    None: no limit has used it."""
    config: ConfigReport
    registry: RegistryReport | None
    """The registry; None: the configuration names none."""


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


class HistoryEntry(TypedDict):
    """One change of a limit: GET /v1/history (a list, the newest first)."""

    t: float
    """Unix time."""
    limit: str
    """Name of the limit; empty if the entry is about no single limit."""
    id: int | None
    change: str
    """`added`, `removed` or `changed`; `more`: of one change, those limits that have no entry;
    `started`: the daemon has started."""
    count: int
    """Limits that the entry is about."""
    keys: dict[str, list[str | None]]
    """The old and the new value of each key; None: it is left out."""
    via: str
    """`control`, `reload`, `signal`, `registry` or `start`."""
    uid: int | None
    """User id of the client on the control socket; the next three keys are about the same
    client."""
    user: str | None
    login: str | None
    """User that logged in, if the kernel knows it: with sudo another than `user`."""
    pid: int | None
    revision: int | None
    """Revision of the fleet's registry."""
    saved: bool


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


class PeerReport(TypedDict):
    """Another limiter of the fleet: GET /v1/peers (a list)."""

    name: str
    address: str
    connected: bool
    verdict: Verdict
    """The verdict of probes."""
    age_s: float | None
    """Time since the last update; None where there was none."""
    received: int
    lost: int
    late: int
    rejected: int


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


class TraceRecord(TypedDict):
    """One tick of one limit: a line of GET /v1/limits/NAME/trace."""

    t: float
    """Unix time."""
    limit: str
    unit: str
    arrived_bps: float
    """This and the next two: over the last interval alone."""
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
