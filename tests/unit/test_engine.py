"""The engine: ticks, rest and rounds; its datapath and socket only note what they are told."""

from __future__ import annotations

from dataclasses import replace
from itertools import dropwhile

import pytest

from drld.daemon.fleet_report import peer_reports
from drld.daemon.limit_report import limit_report, limit_reports, trace_record
from drld.gossip.fabrics.quiescence import QUIET_ROUNDS
from drld.limiter import Limiter

from ..engine_fakes import FIRST, SLOW, Bench, heartbeat, weight
from ..factories import MBIT, MS, TICK_NS, limit_spec, with_policy
from ..factories import limiter_spec as spec
from ..wire import mesh


def resting() -> Bench:
    """Two unused limits, quiescent after a hundred intervals."""
    bench = Bench(spec(FIRST, SLOW))
    bench.run(1, 100)
    return bench


def test_each_limit_ticks_at_its_own_interval() -> None:
    bench = Bench(spec(FIRST, SLOW))
    assert bench.engine.next_due_ns() == TICK_NS
    names = []
    for now in range(1, 9):
        bench.packet(1)
        bench.packet(2)
        names += [name for name, _ in bench.engine.tick(now * TICK_NS)]
    assert (names.count("first"), names.count("slow")) == (8, 2)
    assert [limit for limit, _ in bench.datapath.programmed].count(2) == 2


def test_a_quiescent_limit_costs_nothing() -> None:
    bench = resting()
    bench.clear()
    assert bench.run(101, 190) == []
    assert (bench.datapath.read_limits, bench.datapath.programmed) == ([], [])
    assert [(peer, update.limit_id) for peer, update in bench.transport.outbox] == [("b", 0)] * 90
    assert len(bench.datapath.flushed_ns) == 90


def test_a_packet_wakes_its_limit_alone() -> None:
    bench = resting()
    bench.clear()
    bench.packet(1)
    ((name, tick),) = bench.engine.tick(101 * TICK_NS)
    assert name == "first"
    # Measured over the interval it came in, not over the time at rest.
    assert tick.measurement.interval_ns == TICK_NS
    assert tick.demand.first
    assert ("b", 1) in {(peer, update.limit_id) for peer, update in bench.transport.outbox}
    assert set(bench.datapath.read_limits) == {1}


def test_a_limit_that_pauses_is_measured_over_its_whole_interval() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.packet(2)
    bench.run(1, 7)
    bench.packet(2)
    (tick,) = [tick for name, tick in bench.engine.tick(8 * TICK_NS) if name == "slow"]
    assert tick.measurement.arrived_items == 1
    assert tick.measurement.interval_ns == 4 * TICK_NS


def test_a_limit_that_falls_idle_tells_its_peers_and_becomes_quiescent() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.packet(1)
    bench.run(1, 100)
    told = [update.value for _, update in bench.transport.outbox if update.limit_id == 1]
    assert told[0] > 0
    zeros = list(dropwhile(bool, told))
    assert len(zeros) == QUIET_ROUNDS
    assert not any(zeros)
    bench.clear()
    assert bench.run(101, 150) == []


def test_an_update_wakes_its_limit() -> None:
    bench = resting()
    bench.transport.inbox = [("b", weight(1))]
    ((name, tick),) = bench.engine.tick(101 * TICK_NS)
    assert (name, tick.view.remote) == ("first", 2.0)
    # Until what it said is too old to count.
    names = bench.run(102, 180)
    assert 20 <= names.count("first") < 40
    assert limit_report(FIRST, bench.engine.limits[1], 0)["fleet"]["remote"] == 0.0


def test_there_are_no_limits_to_report_before_the_start() -> None:
    """The control API answers while a daemon waits for its registry."""
    bench = Bench(spec(FIRST, SLOW), start=False)
    assert list(limit_reports(bench.engine, 0)) == []
    bench.engine.start(0)
    assert [report["name"] for report in limit_reports(bench.engine, 0)] == ["first", "slow"]


def test_a_change_of_the_membership_wakes_every_limit() -> None:
    bench = resting()
    bench.transport.inbox = [("b", heartbeat())]
    names = bench.run(101, 102)
    assert set(names) == {"first", "slow"}
    report = limit_report(FIRST, bench.engine.limits[1], 0)
    assert report["fleet"]["connected"] == ["b"]
    assert report["limit_in_force_bps"] == 5_000_000
    bench.transport.inbox = [("b", heartbeat(sequence)) for sequence in range(1, 9)]
    # And again, when it has been there for so long that its share counts.
    assert set(bench.run(103, 110)) == {"first", "slow"}
    assert limit_report(FIRST, bench.engine.limits[1], 0)["limit_in_force_bps"] == 10_000_000
    assert limit_report(FIRST, bench.engine.limits[1], 112 * TICK_NS)["fleet"]["age_s"] == 0.45
    # And again, when the peer is gone.
    bench.run(111, 200)
    assert limit_report(FIRST, bench.engine.limits[1], 0)["fleet"]["connected"] == []


def test_a_watched_limit_does_not_rest() -> None:
    bench = resting()
    names = [
        name for now in range(101, 111) for name, _ in bench.engine.tick(now * TICK_NS, ["first"])
    ]
    assert names == ["first"] * 10


def test_updates_of_several_limits_share_a_message() -> None:
    second = with_policy(FIRST, id=2, name="second")
    bench = Bench(spec(FIRST, second, peers=("b", "c")))
    bench.packet(1)
    bench.packet(2)
    bench.engine.tick(TICK_NS)
    assert [
        (peer, [update.limit_id for update in updates])
        for peer, updates in bench.transport.messages
    ] == [("b", [1, 2]), ("c", [1, 2])]


def test_a_limit_that_wakes_up_ticks_with_the_others() -> None:
    """One wake-up an interval, however the limits came to be awake."""
    bench = Bench(spec(FIRST, with_policy(FIRST, id=2, name="second")))
    bench.run(1, 60)
    bench.packet(1)
    bench.engine.tick(61 * TICK_NS + 3 * MS)
    bench.packet(2)
    bench.engine.tick(62 * TICK_NS + 4 * MS)
    bench.packet(1)
    bench.packet(2)
    assert bench.engine.next_due_ns() == 63 * TICK_NS
    assert len(bench.engine.tick(63 * TICK_NS)) == 2


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
    assert bench.engine.membership.connected(TICK_NS) == {"b"}
    (peer,) = peer_reports(bench.engine, 2 * TICK_NS)
    assert (peer["received"], peer["rejected"], peer["connected"]) == (1, 1, True)
    assert peer["age_s"] == pytest.approx(0.05)


def test_reports_are_in_bits_per_second() -> None:
    bench = Bench(spec(FIRST))
    entry = bench.engine.limits[1]
    before = limit_report(FIRST, entry, 0)
    assert (before["rate_bps"], before["fill_rate_bps"]) == (10_000_000, 5_000_000)
    assert before["limit_in_force_bps"] == 5_000_000
    bench.transport.inbox = [("b", weight(1))]
    ((name, tick),) = bench.engine.tick(TICK_NS)
    after, record = limit_report(FIRST, entry, 0), trace_record(name, tick, 1.0)
    assert after["limit_in_force_bps"] == record["limit_in_force_bps"] == 10_000_000
    assert after["fleet"]["quantity"] == "weight"
    assert after["fleet"]["remote"] == record["remote"] == 2.0


def test_rates_that_are_shared_are_reported_in_bits_per_second() -> None:
    bench = Bench(spec(limit_spec("grd")))
    bench.transport.inbox = [("b", mesh(1, 0, float(MBIT)))]
    bench.engine.tick(TICK_NS)
    report = limit_report(FIRST, bench.engine.limits[1], 0)
    assert report["fleet"]["quantity"] == "rate"
    assert report["fleet"]["remote"] == 1_000_000
    assert report["local_limit_bps"] is None


def test_a_tick_ends_with_one_flush() -> None:
    bench = Bench(spec(FIRST, with_policy(FIRST, id=2, name="second")))
    bench.engine.tick(TICK_NS)
    assert len(bench.datapath.programmed) == 2
    assert bench.datapath.flushed_ns == [TICK_NS]


def test_the_datapath_knows_the_static_share_for_when_the_daemon_dies() -> None:
    bench = Bench(spec(FIRST))
    assert bench.datapath.shares[1].fill_rate == FIRST.policy.rate // 2
    bench.engine.reconfigure(spec(FIRST, peers=("b", "c", "d")), TICK_NS)
    assert bench.datapath.shares[1].fill_rate == FIRST.policy.rate // 4


def test_between_rounds_only_limits_with_pressing_news_send_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configured = spec(limits=(FIRST, with_policy(SLOW, interval_ns=TICK_NS)))
    rarely = replace(configured, gossip=replace(configured.gossip, interval_ns=4 * TICK_NS))
    bench = Bench(rarely)
    for limit_id in (FIRST.id, SLOW.id):
        bench.packet(limit_id)
    bench.run(1, 4)
    told = {update.limit_id for _, update in bench.transport.outbox}
    assert told == {FIRST.id, SLOW.id}
    bench.clear()
    bench.run(5, 6)
    assert bench.transport.messages == []
    monkeypatch.setattr(Limiter, "pressing", lambda limiter, _: limiter.policy is FIRST.policy)
    bench.run(7, 7)
    assert {update.limit_id for _, update in bench.transport.outbox} == {FIRST.id}
    assert len(bench.transport.messages) == len(rarely.peers)


def test_a_datapath_may_expect_a_living_daemon_to_show_in_each_look() -> None:
    """However long a limit's interval is: peers do not wait for longer."""
    often = with_policy(FIRST, interval_ns=TICK_NS // 2)
    bench = Bench(spec(often, SLOW))
    assert [limit.policy.interval_ns for limit in bench.datapath.attached] == [
        TICK_NS // 2,
        TICK_NS,
    ]
    kept = [entry.limiter.policy for entry in bench.engine.limits.values()]
    assert kept == [often.policy, SLOW.policy]


def test_a_changed_connection_counts_at_once_in_any_interval() -> None:
    bench = Bench(spec(with_policy(SLOW, interval_ns=100 * TICK_NS)))
    bench.run(1, 100)
    bench.transport.inbox = [("b", heartbeat())]
    for now in range(101, 150):
        bench.packet(2)
        bench.transport.inbox.append(("b", heartbeat(now)))
        bench.engine.tick(now * TICK_NS)
        last = bench.engine.limits[2].last
        if now == 103:
            assert last is not None
            assert last.view.connected == {"b"}
            assert last.measurement.interval_ns < 3 * TICK_NS
    assert limit_report(FIRST, bench.engine.limits[2], 0)["limit_in_force_bps"] == 10_000_000


def test_a_limiter_that_has_not_joined_sends_and_believes_no_update() -> None:
    bench = Bench(spec(FIRST, joined=False))
    bench.packet(1)
    bench.transport.inbox.append(("b", heartbeat()))
    bench.run(1, 10)
    assert bench.transport.messages == []
    assert bench.transport.inbox == []
    assert bench.engine.membership.connected(10 * TICK_NS) == frozenset()
    assert bench.datapath.programmed[-1][1].fill_rate == pytest.approx(FIRST.policy.rate / 2)
