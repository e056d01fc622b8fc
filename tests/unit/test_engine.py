"""The engine with a datapath and a socket that only note what they are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from drld.capture.policer import Policer
from drld.engine import Engine
from drld.errors import ConfigError, DatapathError
from drld.gossip.transport import Transport
from drld.model import Enforcement, FlowId, FlowKey, Measurement, Quantity, Update
from drld.report import connected_peers, limit_report, peer_reports, trace_record
from drld.spec import LimiterSpec, LimitSpec, PeerSpec

from ..factories import MBIT, MS, TICK_NS, gossip_spec, limit_spec


class FakeDatapath:
    name = "fake"

    def __init__(self) -> None:
        self.policers: dict[int, Policer] = {}
        self.programmed: list[tuple[int, Enforcement]] = []
        self.refuse = False
        self.shares: dict[int, Enforcement] = {}
        self.flushed_ns: list[int] = []
        self.attached: list[LimitSpec] = []

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        if self.refuse:
            raise DatapathError("refused")
        limits = list(limits)
        self.attached = [limit for limit, _ in limits]
        self.policers = {
            limit.id: self.policers.get(limit.id) or Policer(limit, enforcement, now_ns)
            for limit, enforcement in limits
        }

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        return self.policers[limit_id].read(now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        self.programmed.append((limit_id, enforcement))
        self.policers[limit_id].program(enforcement, evict, now_ns)

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        self.shares[limit_id] = share

    def flush(self, now_ns: int) -> None:
        self.flushed_ns.append(now_ns)

    def counters(self) -> Mapping[str, int]:
        return {}

    def detach(self) -> None:
        self.policers = {}


class FakeTransport:
    def __init__(self) -> None:
        self.inbox: list[tuple[str, Update]] = []
        self.outbox: list[tuple[str, Update]] = []
        self.peers: Mapping[str, Any] = {}

    def receive(self) -> Iterator[tuple[str, Update]]:
        while self.inbox:
            yield self.inbox.pop(0)

    def send(self, peer: str, update: Update) -> None:
        self.outbox.append((peer, update))

    def update_peers(self, peers: Mapping[str, Any]) -> None:
        self.peers = peers

    def close(self) -> None:
        pass


def spec(*limits: LimitSpec, peers: tuple[str, ...] = ("b",), **changes: Any) -> LimiterSpec:
    values: dict[str, Any] = {
        "name": "a",
        "listen": ("127.0.0.1", 7946),
        "control": "/run/drld/a.sock",
        "datapath": "auto",
        "firewall": "auto",
        "queue": None,
        "timestamps": "auto",
        "gossip": gossip_spec(),
        "peers": tuple(PeerSpec(peer, ("127.0.0.2", 7946)) for peer in peers),
        "limits": limits,
    }
    return LimiterSpec(**{**values, **changes})


class Bench:
    def __init__(self, configured: LimiterSpec) -> None:
        self.datapath = FakeDatapath()
        self.transport = FakeTransport()
        self.engine = Engine(configured, self.datapath, cast(Transport, self.transport), Random(1))
        self.engine.start(0)


FIRST = limit_spec(id=1, name="first")
SLOW = limit_spec(id=2, name="slow", interval_ns=4 * TICK_NS)


def weight(limit_id: int, sequence: int = 0) -> Update:
    return Update(
        limit_id=limit_id,
        sequence=sequence,
        quantity=Quantity.WEIGHT,
        epoch=0,
        value=2.0,
        weight=1.0,
    )


def test_each_limit_ticks_at_its_own_interval() -> None:
    bench = Bench(spec(FIRST, SLOW))
    assert bench.engine.next_due_ns() == TICK_NS
    names = [name for now in range(1, 9) for name, _ in bench.engine.tick(now * TICK_NS)]
    assert (names.count("first"), names.count("slow")) == (8, 2)
    assert [limit for limit, _ in bench.datapath.programmed].count(2) == 2
    assert len(bench.transport.outbox) == 8 + 2


def test_a_late_tick_keeps_the_grid_and_a_stall_begins_a_new_one() -> None:
    bench = Bench(spec(FIRST))
    bench.engine.tick(TICK_NS + 10 * MS)
    assert bench.engine.next_due_ns() == 2 * TICK_NS
    bench.engine.tick(7 * TICK_NS + 3 * MS)
    assert bench.engine.next_due_ns() == 8 * TICK_NS + 3 * MS


def test_updates_reach_their_limit_and_unknown_ones_are_counted() -> None:
    bench = Bench(spec(FIRST))
    bench.transport.inbox = [("b", weight(1)), ("b", weight(9))]
    bench.engine.tick(TICK_NS)
    assert connected_peers(bench.engine, TICK_NS) == {"b"}
    (peer,) = peer_reports(bench.engine, 2 * TICK_NS)
    assert (peer["received"], peer["rejected"], peer["connected"]) == (1, 1, True)
    assert peer["age_s"] == pytest.approx(0.05)


def test_reports_are_in_bits_per_second() -> None:
    bench = Bench(spec(FIRST))
    entry = bench.engine.entries[1]
    before = limit_report(entry)
    assert (before["rate_bps"], before["fill_rate_bps"]) == (10_000_000, 5_000_000)
    assert before["limit_in_force_bps"] == 5_000_000
    bench.transport.inbox = [("b", weight(1))]
    ((name, tick),) = bench.engine.tick(TICK_NS)
    after, record = limit_report(entry), trace_record(name, tick, 1.0)
    assert after["limit_in_force_bps"] == record["limit_in_force_bps"] == 10_000_000
    assert after["fleet"]["quantity"] == "weight"
    assert after["fleet"]["remote"] == record["remote"] == 2.0


def test_rates_that_are_shared_are_reported_in_bits_per_second() -> None:
    bench = Bench(spec(limit_spec("grd")))
    bench.transport.inbox = [
        (
            "b",
            Update(
                limit_id=1,
                sequence=0,
                quantity=Quantity.RATE,
                epoch=0,
                value=float(MBIT),
                weight=1.0,
            ),
        )
    ]
    bench.engine.tick(TICK_NS)
    report = limit_report(bench.engine.entries[1])
    assert report["fleet"]["quantity"] == "rate"
    assert report["fleet"]["remote"] == 1_000_000
    assert report["local_limit_bps"] is None


def test_a_reload_keeps_what_a_limit_knows_and_drops_what_is_gone() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.transport.inbox = [("b", weight(1))]
    bench.engine.tick(TICK_NS)
    kept = bench.engine.entries[1]
    third = limit_spec(id=3, name="third")
    faster = limit_spec(id=1, name="first", rate=20 * MBIT)
    bench.engine.reconfigure(spec(faster, third, peers=("b", "c")), 2 * TICK_NS)
    assert list(bench.engine.entries) == [1, 3]
    assert bench.engine.entries[1] is kept
    assert kept.limiter.limit.rate == 20 * MBIT
    assert kept.limiter.members == {"a", "b", "c"}
    assert kept.limiter.fabric.view(2 * TICK_NS).connected == {"b"}
    assert set(bench.transport.peers) == {"b", "c"}
    assert bench.datapath.attached == [faster, third]


def test_a_changed_allocator_starts_the_estimates_anew_and_keeps_the_totals() -> None:
    bench = Bench(spec(FIRST))
    bench.datapath.policers[1].arrive(FlowKey(6, b"", b"", 0, 0), 1500)
    bench.engine.tick(TICK_NS)
    before = bench.engine.entries[1]
    bench.engine.reconfigure(spec(limit_spec("grd", id=1, name="first")), TICK_NS)
    after = bench.engine.entries[1]
    assert after is not before
    assert after.totals.arrived_bytes == 1500


def test_what_needs_a_restart_is_refused_by_its_key() -> None:
    bench = Bench(spec(FIRST))
    with pytest.raises(ConfigError, match=r"limiter\.listen.*restart"):
        bench.engine.reconfigure(spec(FIRST, listen=("127.0.0.9", 7946)), TICK_NS)


def test_a_refused_reload_changes_nothing() -> None:
    bench = Bench(spec(FIRST))
    bench.datapath.refuse = True
    with pytest.raises(DatapathError):
        bench.engine.reconfigure(spec(limit_spec(id=1, rate=MBIT)), TICK_NS)
    assert bench.engine.entries[1].limiter.limit.rate == 10 * MBIT
    assert bench.engine.spec.limits == (FIRST,)


def test_a_tick_ends_with_one_flush() -> None:
    bench = Bench(spec(FIRST, replace(FIRST, id=2, name="second")))
    bench.engine.tick(TICK_NS)
    assert len(bench.datapath.programmed) == 2
    assert bench.datapath.flushed_ns == [TICK_NS]


def test_the_datapath_knows_the_static_share_for_when_the_daemon_dies() -> None:
    bench = Bench(spec(FIRST))
    assert bench.datapath.shares[1].fill_rate == FIRST.rate // 2
    bench.engine.reconfigure(spec(FIRST, peers=("b", "c", "d")), TICK_NS)
    assert bench.datapath.shares[1].fill_rate == FIRST.rate // 4
