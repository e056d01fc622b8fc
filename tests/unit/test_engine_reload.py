"""A reload of the engine: state that stays, changes that are refused, estimates that restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from drld import config
from drld.capture.spec import PacketsSpec
from drld.daemon.fleet_report import peer_reports
from drld.daemon.limit_report import limit_report
from drld.errors import ConfigError, DatapathError
from drld.gossip.health.config_digest import ALL, GOSSIP_ID
from drld.gossip.wire.session import Met
from drld.police.policer import Excess
from drld.police.source_sample import SourcePrefix
from drld.policy import Policy
from drld.shared_settings import shared_settings
from drld.spec import GossipSpec, LimiterSpec, ProbeSpec

from ..engine_fakes import FIRST, SLOW, Bench, heartbeat, weight
from ..factories import MBIT, TICK_NS, gossip_spec, limit_spec, with_policy
from ..factories import limiter_spec as spec
from .config.good import GOOD


def test_a_reload_keeps_what_a_limit_knows_and_drops_what_is_gone() -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.transport.inbox = [("b", weight(1))]
    bench.engine.tick(TICK_NS)
    kept = bench.engine.limits[1]
    third = limit_spec(id=3, name="third")
    faster = limit_spec(id=1, name="first", rate=20 * MBIT)
    bench.engine.reconfigure(spec(faster, third, peers=("b", "c")), 2 * TICK_NS)
    assert list(bench.engine.limits) == [1, 3]
    assert bench.engine.limits[1] is kept
    assert kept.limiter.policy.rate == 20 * MBIT
    assert kept.limiter.membership.peers == ("b", "c")
    assert kept.limiter.fabric.view(2 * TICK_NS).connected == {"b"}
    assert set(bench.transport.peers) == {"b", "c"}
    assert bench.datapath.attached == [faster, third]


@pytest.mark.parametrize("change", ["removed", "allocator", "fabric"])
def test_the_counts_of_a_peer_do_not_fall_with_a_reload(change: str) -> None:
    bench = Bench(spec(FIRST, SLOW))
    bench.transport.inbox = [("b", heartbeat()), ("b", weight(1)), ("b", weight(2))]
    bench.engine.tick(TICK_NS)
    (before,) = peer_reports(bench.engine, TICK_NS)
    assert before["received"] == 3
    after = {
        "removed": spec(SLOW),
        "allocator": spec(limit_spec("static", id=1, name="first"), SLOW),
        "fabric": replace(spec(FIRST, SLOW), gossip=gossip_spec("pushsum")),
    }[change]
    listing = peer_reports(bench.engine, TICK_NS)
    bench.engine.reconfigure(after, TICK_NS)
    assert next(peer_reports(bench.engine, TICK_NS))["received"] == 3
    assert next(listing)["received"] == 3
    bench.engine.reconfigure(replace(after, peers=()), TICK_NS)
    assert bench.engine.former_links == {}


def test_a_change_of_one_limit_costs_the_others_no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 10,000 limits, a tick of all of them took the event loop 0.8 s."""
    limits = [limit_spec("static", id=number, name=f"l{number}") for number in range(1, 101)]
    probes = ProbeSpec(TICK_NS, 3)
    bench = Bench(replace(spec(*limits, peers=()), probes=probes))
    asleep = 20
    bench.run(1, asleep)
    bench.packet(5)
    assert bench.run(asleep + 1, asleep + 1) == ["l5"]
    bench.clear()
    bench.datapath.shares.clear()
    asked: list[int] = []

    def noted(policies: Iterable[Policy], gossip: GossipSpec) -> dict[int, bytes]:
        found = shared_settings(policies, gossip)
        asked.extend(found.keys() - {GOSSIP_ID})
        return found

    monkeypatch.setattr("drld.node.shared_settings", noted)
    limits[6] = with_policy(limits[6], rate=20 * MBIT)
    changed = replace(spec(*limits, peers=()), probes=probes)
    bench.engine.reconfigure(changed, asleep * TICK_NS + TICK_NS + 1)
    bench.run(asleep + 2, asleep + 3)
    assert {*bench.datapath.read_limits} <= {5, 7}
    assert 7 in bench.datapath.read_limits
    assert bench.datapath.shares.keys() == {7}
    assert asked == [7]
    probers = [it.engine.node.probes for it in (bench, Bench(changed))]
    assert len({it.config_digest.digest(ALL) for it in probers if it}) == 1


def test_a_new_limit_is_ticked_though_other_ticks_come_before_it_is_due() -> None:
    """Without traffic it is quiescent from the beginning, and would sleep with its static share."""
    bench = Bench(spec(FIRST))
    bench.run(1, 20)
    bench.engine.reconfigure(spec(FIRST, SLOW), 20 * TICK_NS + 1)
    bench.engine.tick(20 * TICK_NS + 2)
    assert bench.engine.limits[2].last is None
    assert "slow" in bench.run(21, 24)


@pytest.mark.parametrize("key", ["peers", "gossip", "joined"])
def test_a_change_of_the_fleet_wakes_all_limits(key: str) -> None:
    bench = Bench(spec(FIRST, SLOW, peers=()))
    bench.run(1, 20)
    assert bench.run(21, 22) == []
    before = bench.engine.spec
    after = {
        "peers": spec(FIRST, SLOW, peers=("b",)),
        "gossip": replace(before, gossip=replace(before.gossip, branching=7)),
        "joined": replace(before, joined=False),
    }[key]
    bench.engine.reconfigure(after, 22 * TICK_NS + 1)
    assert {*bench.run(23, 24)} == {"first", "slow"}


def test_an_automatic_burst_follows_the_rate() -> None:
    def configured(rate: str) -> LimiterSpec:
        text = GOOD.replace("10mbit", rate).replace('burst = "400kB"\n', 'allocator = "static"\n')
        return config.parse(text, "f")

    bench = Bench(configured("10mbit"))
    entry = bench.engine.limits[1]
    assert limit_report(FIRST, entry, 0)["burst_bytes"] == 312_500
    bench.engine.reconfigure(configured("20mbit"), TICK_NS)
    bench.engine.tick(2 * TICK_NS)
    report = limit_report(FIRST, entry, 2 * TICK_NS)
    assert (report["burst_bytes"], report["burst_is_automatic"]) == (625_000, True)
    # Of two limiters each has half of the bucket.
    assert report["depth_bytes"] == 312_500


def test_a_reload_changes_excess_and_weights() -> None:
    bench = Bench(spec(FIRST))
    entry = bench.engine.limits[1]
    report = limit_report(FIRST, entry, 0)
    assert (report["excess"], report["weights"]) == ("drop", {})
    assert not report["burst_is_automatic"]
    changed = with_policy(FIRST, excess=Excess.MARK, weights={"b": 2.0})
    bench.engine.reconfigure(spec(changed), TICK_NS)
    assert bench.engine.limits[1] is entry
    report = limit_report(FIRST, entry, TICK_NS)
    assert (report["excess"], report["weights"]) == ("mark", {"b": 2.0})


def test_a_changed_definition_of_a_flow_restarts_the_estimates() -> None:
    bench = Bench(spec(FIRST))
    before = bench.engine.limits[1]
    assert limit_report(FIRST, before, 0)["flow"] == "5-tuple"
    bench.engine.reconfigure(spec(with_policy(FIRST, flow=SourcePrefix(24))), TICK_NS)
    after = bench.engine.limits[1]
    assert after is not before
    assert limit_report(FIRST, after, TICK_NS)["flow"] == "source/24/64"


def test_a_changed_allocator_restarts_the_estimates_and_keeps_the_totals() -> None:
    bench = Bench(spec(FIRST))
    bench.packet(1)
    bench.engine.tick(TICK_NS)
    before = bench.engine.limits[1]
    bench.engine.reconfigure(spec(limit_spec("grd", id=1, name="first")), TICK_NS)
    after = bench.engine.limits[1]
    assert after is not before
    assert after.totals.arrived_tokens == 1500


def test_a_change_that_needs_a_restart_is_refused_by_its_key() -> None:
    bench = Bench(spec(FIRST))
    with pytest.raises(ConfigError) as refused:
        bench.engine.reconfigure(
            spec(FIRST, listen=("fd00::9", 7946), planes=(PacketsSpec(queue=17),)), TICK_NS
        )
    assert refused.value.problems == [
        f"{change} while the daemon runs: restart it"
        for change in (
            "limiter.listen: cannot change from '127.0.0.1:7946' to '[fd00::9]:7946'",
            "packets.queue: cannot change from the default to 17",
        )
    ]


def test_a_refused_reload_changes_nothing() -> None:
    bench = Bench(spec(FIRST))
    bench.engine.reconfigure(spec(FIRST), 0)
    bench.datapath.refuse = True
    with pytest.raises(DatapathError):
        bench.engine.reconfigure(spec(limit_spec(id=1, rate=MBIT), peers=("b", "c")), TICK_NS)
    bench.datapath.refuse = False
    with pytest.raises(ConfigError, match=r"peer\.bad\.address"):
        bench.engine.reconfigure(spec(limit_spec(id=1, rate=MBIT), peers=("bad",)), TICK_NS)
    assert bench.engine.limits[1].limiter.policy.rate == 10 * MBIT
    assert bench.engine.spec.limits == (FIRST,)
    assert bench.datapath.attached == [FIRST]
    assert bench.transport.peers.keys() == {"b"}


def test_a_change_of_the_fleet_alone_leaves_the_datapath_attached_if_asked_to() -> None:
    bench = Bench(spec(FIRST))
    bench.datapath.attached = []
    grown = spec(FIRST, peers=("b", "c"))
    bench.engine.reconfigure(grown, TICK_NS, reattach=False)
    assert bench.datapath.attached == []
    assert bench.engine.membership.peers == ("b", "c")
    assert bench.datapath.shares[1].fill_rate == pytest.approx(FIRST.policy.rate / 3)
    bench.engine.reconfigure(replace(grown, limits=(FIRST, SLOW)), TICK_NS, reattach=False)
    assert [limit.id for limit in bench.datapath.attached] == [FIRST.id, SLOW.id]
    bench.datapath.attached = []
    bench.engine.reconfigure(replace(grown, limits=(FIRST, SLOW)), TICK_NS)
    assert [limit.id for limit in bench.datapath.attached] == [FIRST.id, SLOW.id]


def test_a_limiter_that_is_no_member_uses_no_peers_share_at_once() -> None:
    bench = Bench(spec(FIRST))
    for number in range(1, 20):
        bench.transport.inbox.append(("b", heartbeat(number)))
        bench.packet(1)
        bench.run(number, number)
    assert bench.engine.membership.connected(20 * TICK_NS) == {"b"}
    bench.engine.reconfigure(spec(FIRST, joined=False), 20 * TICK_NS)
    bench.packet(1)
    bench.run(21, 21)
    assert bench.engine.membership.connected(21 * TICK_NS) == frozenset()
    assert bench.datapath.programmed[-1][1].fill_rate == pytest.approx(FIRST.policy.rate / 2)


def test_shares_grow_once_a_departed_limiter_counts_nowhere() -> None:
    bench = Bench(spec(FIRST, peers=("b", "c")))
    bench.engine.reconfigure(spec(FIRST), TICK_NS)
    forgotten_ns = TICK_NS + bench.engine.membership.forgotten_ns
    bench.clear()
    bench.run(2, forgotten_ns // TICK_NS)
    assert bench.datapath.shares[1].fill_rate == pytest.approx(FIRST.policy.rate / 3)
    bench.run(forgotten_ns // TICK_NS + 1, forgotten_ns // TICK_NS + 2)
    assert bench.datapath.shares[1].fill_rate == FIRST.policy.rate // 2
    assert bench.engine.membership.peers == ("b",)
    assert {peer for peer, _ in bench.transport.messages} == {"b"}


def test_a_limit_that_is_added_is_ticked_though_it_is_at_rest() -> None:
    bench = Bench(spec(FIRST))
    bench.engine.reconfigure(spec(FIRST, SLOW), TICK_NS)
    bench.run(2, 4)
    assert bench.engine.limits[SLOW.id].last is not None


def test_a_departed_limiter_that_is_configured_again_is_a_peer() -> None:
    bench = Bench(spec(FIRST, peers=("b", "c")))
    bench.engine.reconfigure(spec(FIRST), TICK_NS)
    bench.engine.reconfigure(spec(FIRST, peers=("b", "c")), 2 * TICK_NS)
    bench.transport.inbox = [("c", Met(7)), ("c", weight(1))]
    bench.clear()
    bench.run(3, 100)
    assert bench.datapath.shares[1].fill_rate == pytest.approx(FIRST.policy.rate / 3)
    assert {peer for peer, _ in bench.transport.messages} == {"b", "c"}
