"""A daemon for the tests of the control API and of drlctl: canned answers, real sockets."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import trio

from drld.config import Files, parsed
from drld.config.changes import Change, Configuration
from drld.control.credentials import Credentials
from drld.control.ranking import Rank
from drld.control.schema.changes import ChangeReport, ConfigTable, HistoryEntry
from drld.control.schema.keys import KeysReport
from drld.control.schema.limits import (
    LimitReport,
    SortKey,
    SuggestionReport,
    TraceLine,
    TraceRecord,
)
from drld.control.schema.live import Event, LiveLimit, PeerHealth
from drld.control.schema.peers import PeerReport
from drld.control.schema.status import StatusReport
from drld.control.server import serve
from drld.control.trace import TraceHub
from drld.daemon.event_log import EventLog
from drld.daemon.fleet_report import keys_report
from drld.daemon.limit_report import change_report
from drld.gossip.wire.keyring import KeyRing
from drld.planes.explanation import Explanation, read_item
from drld.reload import differences, tables
from drld.spec import PlaneSpec

STATUS = StatusReport(
    name="lim1",
    version="0.1.0",
    pid=4711,
    uptime_s=7380.0,
    ticks={"run": 147600, "late": 12},
    ready=True,
    datapath={
        "name": "nfqueue",
        "reason": "asked for",
        "firewall": "iptables",
        "queue": 17,
        "counters": {"overflow": 2, "truncated": 0},
    },
    fabric={"name": "pushsum", "branching": 3, "interval_s": 0.05},
    peers={"configured": 2, "connected": 1},
    probes={
        "alive": 1,
        "suspect": 0,
        "dead": 1,
        "left": 0,
        "unknown": 0,
        "isolated": False,
        "awareness": 0,
        "disagreeing": {"lim2": ["customer-a"]},
    },
    limits=2,
    deltas=None,
    gossip={
        "sent": 1200,
        "received": 1180,
        "bytes_sent": 57600,
        "control_sent": 40,
        "control_received": 39,
        "handshakes": 3,
        "greetings": 2,
        "sessions": 1,
        "floods": 0,
        "rejected": {"tag": 2, "value": 1},
        "errors": {},
    },
    config={
        "file": "/etc/drld/drld.toml",
        "loaded_at": 1_700_000_000.5,
        "reload_error": None,
        "unsaved": [],
        "dropped": [],
        "certificate_expires_at": None,
    },
    registry=None,
)

FPS_LIMIT = LimitReport(
    id=1,
    name="customer-a",
    allocator="fps",
    mode="enforce",
    on_failure="share",
    excess="drop",
    unsaved=[],
    unit="bytes",
    items="packets",
    rate_bps=10_000_000,
    burst_bytes=312_500,
    burst_is_automatic=True,
    interval_s=0.05,
    weights={},
    match={"in": "eth1"},
    overrides=[],
    overrides_in_all=0,
    flow="5-tuple",
    limit_in_force_bps=6_666_666.7,
    demand_bps=3_120_000.0,
    fleet={
        "quantity": "weight",
        "local": 3.021,
        "remote": 7.1,
        "connected": ["lim2"],
        "unnamed": 2,
        "age_s": 0.043,
    },
    local_limit_bps=3_050_000.0,
    drop_probability=0.0,
    fill_rate_bps=3_050_000.0,
    depth_bytes=22_875,
    arrived_bytes=130_000_000,
    arrived_packets=90_123,
    forwarded_bytes=128_800_000,
    forwarded_packets=89_300,
    dropped_bytes=1_200_000,
    dropped_packets=823,
    marked_bytes=0,
    marked_packets=0,
    flows=3,
    waits=None,
)

GRD_LIMIT = LimitReport(
    id=20,
    name="b",
    allocator="grd",
    mode="shadow",
    on_failure="open",
    excess="mark",
    unsaved=["mode", "match"],
    unit="bytes",
    items="packets",
    rate_bps=1_500_000_000,
    burst_bytes=2_000_000,
    burst_is_automatic=False,
    interval_s=0.5,
    weights={"lim1": 2.0, "lim3": 0.25},
    match={"out": "eth1", "protocol": "tcp"},
    overrides=[],
    overrides_in_all=0,
    flow="source/24/64",
    limit_in_force_bps=1_500_000_000,
    demand_bps=0.0,
    fleet={
        "quantity": "rate",
        "local": 0.0,
        "remote": 1e9,
        "connected": [],
        "unnamed": 0,
        "age_s": None,
    },
    local_limit_bps=None,
    drop_probability=0.1253,
    fill_rate_bps=0.0,
    depth_bytes=None,
    arrived_bytes=0,
    arrived_packets=0,
    forwarded_bytes=0,
    forwarded_packets=0,
    dropped_bytes=0,
    dropped_packets=0,
    marked_bytes=0,
    marked_packets=0,
    flows=0,
    waits=None,
)

PEERS = [
    PeerReport(
        name="lim2",
        address="10.0.0.2:7946",
        connected=True,
        verdict="alive",
        age_s=0.043,
        received=1180,
        lost=12,
        late=3,
        rejected=0,
    ),
    PeerReport(
        name="lim3",
        address="10.0.0.3:7946",
        connected=False,
        verdict="dead",
        age_s=None,
        received=0,
        lost=0,
        late=0,
        rejected=1,
    ),
]


def record(limit: str, number: int) -> TraceRecord:
    """The record of the limit's tick of that number."""
    return TraceRecord(
        t=1_700_000_000 + number * 0.05,
        limit=limit,
        unit="bytes",
        arrived_bps=3_200_000.0,
        forwarded_bps=3_100_000.0,
        dropped_bps=100_000.0,
        demand_bps=3_120_000.0,
        local=3.021,
        remote=7.1,
        limit_in_force_bps=10_000_000,
        local_limit_bps=None if number % 2 else 3_050_000.0,
        drop_probability=0.0,
        fill_rate_bps=3_050_000.0,
        depth_bytes=22_875,
        flows=number,
    )


CONFIGURATION = Configuration.of(
    Files(
        "/etc/drld/drld.toml",
        parsed(
            """
[limiter]
name = "lim1"
listen = "10.0.0.1:7946"
[[peer]]
name = "lim2"
address = "10.0.0.2:7946"
[[limit]]
id = 1
name = "customer-a"
rate = "10mbit"
match = { out = "eth1" }
""",
            "drld.toml",
        ),
    )
)


T = TypeVar("T")
P = TypeVar("P", bound=PlaneSpec)


class FakeDaemon:
    """The backend; what it answers can be changed, what it was asked can be looked at."""

    def __init__(self) -> None:
        self.report = copy.deepcopy(STATUS)
        self.reports: list[LimitReport] = [copy.deepcopy(FPS_LIMIT), copy.deepcopy(GRD_LIMIT)]
        self.peer_reports = copy.deepcopy(PEERS)
        self.ring = self.configured = KeyRing({1: bytes(range(16))}, use=1)
        self.hub = TraceHub()
        self.event_log = EventLog()
        self.datapaths: list[object] = []
        self.readers = 0
        self.readers_changed = trio.Condition()
        self.reloads = 0
        self.reloading = 0
        self.reload_error: Exception | None = None
        self.configuration = CONFIGURATION
        self.entries: list[HistoryEntry] = []
        self.suggestion: SuggestionReport | int | None = 7
        self.explanations: list[Explanation] = []
        self.ticks_for_readers = 0
        """How many records every new reader of a trace gets at once."""

    def status(self) -> StatusReport:
        return self.report

    def limits(self, ids: Sequence[int] | None = None) -> Iterable[LimitReport]:
        by_id = {report["id"]: report for report in self.reports}
        return iter(self.reports if ids is None else [by_id[it] for it in ids])

    def limit(self, name: str) -> LimitReport:
        return {report["name"]: report for report in self.reports}[name]

    def ranks(self, by: SortKey) -> Iterable[Rank]:
        for it in self.reports:
            first: dict[str, float | str] = {
                "name": it["name"],
                "rate": -it["rate_bps"],
                "pressure": -it["demand_bps"] / it["rate_bps"],
            }
            yield Rank(first.get(by, -it["demand_bps"]), it["id"], it["name"])

    def peers(self) -> Iterable[PeerReport]:
        return self.peer_reports

    def look(self, limit_id: int) -> None:
        pass

    def live_limits(self, ids: Collection[int]) -> list[LiveLimit]:
        return [
            LiveLimit(
                **report,
                counted_age_s=0.0,
                told=[{"peer": "lim2", "value": 7.1, "limiters": 3}],
                measured=[],
            )
            for report in self.reports
            if report["id"] in ids
        ]

    def health(self) -> list[PeerHealth]:
        keys = ("name", "address", "connected", "verdict", "age_s")
        return [PeerHealth(**{key: it[key] for key in keys}) for it in self.peer_reports]  # type: ignore[typeddict-item, literal-required]  # the keys are its own

    def events(self, after: int) -> Iterable[Event]:
        return self.event_log.after(after)

    def keys(self) -> KeysReport:
        return keys_report(self.ring, self.configured)

    def change_keys(self, change: Callable[[KeyRing], KeyRing]) -> None:
        self.ring = change(self.ring)

    @asynccontextmanager
    async def trace(self, limit: str) -> AsyncIterator[trio.MemoryReceiveChannel[TraceLine]]:
        if limit not in (report["name"] for report in self.reports):
            raise KeyError(limit)
        async with self.hub.subscribe(limit) as records:
            await self._count_reader(1)
            try:
                self.tick(limit, range(self.ticks_for_readers))
                yield records
            finally:
                with trio.CancelScope(shield=True):
                    await self._count_reader(-1)

    async def _count_reader(self, change: int) -> None:
        async with self.readers_changed:
            self.readers += change
            self.readers_changed.notify_all()

    async def has_readers(self, count: int) -> None:
        """Wait until that many traces are read."""
        async with self.readers_changed:
            while self.readers != count:
                await self.readers_changed.wait()

    def tick(self, limit: str, numbers: Iterable[int]) -> None:
        """Publish the limit's ticks of these numbers."""
        for number in numbers:
            self.hub.publish(limit, lambda: record(limit, number))  # noqa: B023 -- called at once

    def explainer(self, *, misses: bool) -> Callable[[str], Iterable[Explanation]]:
        def explain(item: str) -> Iterable[Explanation]:
            read_item(item)
            return [row for row in self.explanations if misses or row["misses"] is None]

        return explain

    def datapath_of(self, kind: type[T]) -> T | None:
        return next((it for it in self.datapaths if isinstance(it, kind)), None)

    def plane_spec(self, kind: type[P]) -> P:
        return self.configuration.in_force.plane(kind)

    def suggest(self, limit: str, part: float) -> SuggestionReport | int | None:
        if limit not in {report["name"] for report in self.reports}:
            raise KeyError(limit)
        if self.suggestion is None or isinstance(self.suggestion, int):
            return self.suggestion
        return SuggestionReport(**{**self.suggestion, "part": part})

    def config(self) -> Iterable[ConfigTable]:
        return [
            ConfigTable(kind=kind, values=dict(table))
            for kind, table in tables(self.configuration.document())
        ]

    def history(self) -> Iterable[HistoryEntry]:
        return self.entries

    async def change_limits(self, change: Change, by: Credentials) -> ChangeReport:
        """Do as the daemon does, but for the datapath and the disk."""
        before, self.configuration = self.configuration, self.configuration.changed(change)
        found = differences(tables(before.document()), tables(self.configuration.document()))
        saved = str(self.configuration.drop_in) if change.save else None
        return change_report(found, saved, ["lim2"])

    async def reload(self, by: Credentials) -> None:
        assert self.reloading == 0
        self.reloading += 1
        await trio.lowlevel.checkpoint()
        self.reloading -= 1
        self.reloads += 1
        if self.reload_error is not None:
            raise self.reload_error


@asynccontextmanager
async def served(daemon: FakeDaemon, path: Path) -> AsyncIterator[None]:
    """The control API of a daemon on a socket; stops promptly or fails."""
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, daemon, path)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()
            nursery.cancel_scope.deadline = trio.current_time()


@asynccontextmanager
async def client(path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client on a control socket; nothing takes it longer than five seconds."""
    transport = httpx.AsyncHTTPTransport(uds=str(path), verify=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://drld", timeout=5
    ) as http_client:
        yield http_client


def many_limits(count: int) -> Iterator[LimitReport]:
    """Limits of different names and ids."""
    for number in range(count):
        yield LimitReport(**{**FPS_LIMIT, "id": number + 1, "name": f"c{number}"})
