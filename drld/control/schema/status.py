"""The daemon as a whole."""

from __future__ import annotations

from typing import Literal, TypedDict


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
    """Whether no peer answers this limiter's probes."""
    awareness: int
    """This limiter's doubt in itself: a limiter waits 1 + `awareness` times as long for answers."""
    disagreeing: dict[str, list[str]]
    """Limiters that have other limits, and the names of those that differ, as far as found."""


class GossipReport(TypedDict):
    """The traffic of the gossip socket."""

    sent: int
    """Number of updates sent."""
    received: int
    """Updates of peers, those included that came late or again."""
    bytes_sent: int
    control_sent: int
    """Probes and acknowledgements."""
    control_received: int
    handshakes: int
    """Number of HELLOs sent."""
    greetings: int
    """Number of HELLOs received."""
    sessions: int
    """Times that a life of a peer was met."""
    floods: int
    """Ticks in which so much was refused that the rest had to wait for the next."""
    rejected: dict[str, int]
    """Datagrams refused, and updates that came again, by reason; those that came late are with the
    peers."""
    errors: dict[str, int]
    """Datagrams that the socket would not send or receive, by the name of the error (errno)."""


class ConfigReport(TypedDict):
    """The configuration in force."""

    file: str
    loaded_at: float
    """Unix time at which the file was read."""
    reload_error: str | None
    """Why the last reload was refused; None after one that was not."""
    unsaved: list[str]
    """Limits with changes that a restart or a reload reverts."""
    dropped: list[str]
    """Limits with unsaved changes that the last reload has reverted."""
    certificate_expires_at: float | None
    """Unix time, of http.certificate; None without one."""


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
