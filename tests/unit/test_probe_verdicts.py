"""Suspicions, refutations and verdicts of one limiter, and when it trusts itself to judge."""

from __future__ import annotations

import pytest

from drld.gossip.health.broadcast_queue import subject
from drld.gossip.wire.control_codec import Kind, Rumour, State
from drld.model import NS_PER_S

from ..wire import encode_control
from .probe_bench import (
    LIVES,
    PEERS,
    TICK,
    TIMES,
    Bench,
    alive,
    answered,
    config_digest,
    suspecting_d,
)


def test_a_limiter_repeats_its_refutation_until_a_peer_has_heard_it() -> None:
    bench = Bench()
    accused = Rumour(subject("a"), 1, 0, State.SUSPECT, 1)
    bench.hear("b", Kind.PROBE, 1 << 21, "a", accused)
    (answer,) = bench.tick()
    refutation = Rumour(subject("a"), 1, 1, State.ALIVE)
    assert answer[1].rumours == (refutation,)
    assert bench.probes.counter == 1
    for _ in range(2 * TIMES.transmissions):
        _, probe = bench.until(Kind.PROBE)
        assert refutation in probe.rumours
    bench.answering = set(PEERS)
    bench.run(4 * TIMES.transmissions)
    bench.said.clear()
    bench.run(3)
    assert all(refutation not in message.rumours for _, message in bench.said)


def test_a_rumour_about_a_former_life_does_not_raise_the_counter() -> None:
    bench = Bench()
    old = Rumour(subject("a"), 99, 5, State.DEAD)
    bench.hear("b", Kind.PROBE, 1 << 21, "a", old)
    (answer,) = bench.tick()
    assert bench.probes.counter == 0
    assert alive("a") in answer[1].rumours


def test_a_message_to_an_accused_limiter_begins_with_the_rumour() -> None:
    bench = Bench()
    bench.probes.peer_states.accuse("b", 1, 0)
    bench.hear("b", Kind.PROBE, 1 << 21, "a")
    (answer,) = bench.tick()
    assert answer[1].rumours[0] == Rumour(subject("b"), 2, 0, State.SUSPECT, 1)


def test_a_limiter_without_answers_is_isolated_and_accuses_no_peer() -> None:
    bench = answered()
    bench.answering = set()
    last = bench.now
    while not bench.probes.isolated(bench.now):
        bench.tick()
    assert bench.now - last <= TIMES.isolation_ns + TICK
    bench.run(2 * TIMES.suspicion_max_ns / NS_PER_S)
    assert State.DEAD not in {bench.probes.peer_states.state(peer) for peer in PEERS}
    bench.answering = set(PEERS)
    bench.run(2)
    assert bench.probes.isolated(bench.now)
    bench.run(TIMES.spread_ns / NS_PER_S)
    assert not bench.probes.isolated(bench.now)


def test_an_isolated_limiter_stays_so_until_it_was_in_contact_for_the_spread_time() -> None:
    bench = answered()
    bench.answering = set()
    bench.run(TIMES.isolation_ns / NS_PER_S + 1)
    bench.answering = set(PEERS)
    bench.run(1.5)
    # It is gone again before any limiter can have heard of it.
    bench.answering = set()
    for _ in range(round(TIMES.isolation_ns / NS_PER_S) * 20):
        assert bench.probes.isolated(bench.now)
        bench.tick()


def test_a_limiter_out_of_contact_declares_no_peer_dead_until_a_refutation_has_spread() -> None:
    bench = suspecting_d()
    bench.run(TIMES.suspicion_min_ns / NS_PER_S - 3)
    bench.answering = set()
    bench.run(3.5)
    assert not bench.probes.isolated(bench.now)
    bench.answering = {"b", "c"}
    bench.run(TIMES.spread_ns / NS_PER_S)
    assert bench.probes.peer_states.state("d") is State.SUSPECT
    bench.run(3)
    assert bench.probes.peer_states.state("d") is State.DEAD


def test_a_suspicion_is_repeated_before_a_verdict() -> None:
    bench = suspecting_d()
    bench.run((TIMES.suspicion_min_ns - TIMES.spread_ns) / NS_PER_S)
    bench.said.clear()
    bench.run(TIMES.spread_ns / NS_PER_S)
    asked = [
        peer
        for peer, message in bench.said
        for rumour in message.rumours
        if peer != "d" and (rumour.subject, rumour.state) == (subject("d"), State.SUSPECT)
    ]
    # Once a period, but for those in which only `d` itself is probed.
    assert 2 <= len(asked) <= 4


def test_a_handshake_is_an_answer_and_a_limiter_without_any_is_not_isolated() -> None:
    alone, strange, met = Bench(met=(), peers=()), Bench(met=()), Bench(met=("b",))
    isolation_s = TIMES.isolation_ns / NS_PER_S + 0.1
    for bench, seconds, isolated in (
        (alone, 100, False), (strange, 100, False), (met, isolation_s, True)
    ):  # fmt: skip
        bench.run(seconds)
        assert bench.probes.isolated(bench.now) is isolated
    assert alone.said == []


def test_no_peer_is_suspected_for_a_pause_of_this_limiter() -> None:
    bench = answered()
    bench.answering = set()
    peer, _ = bench.until(Kind.PROBE)
    bench.tick(10 * NS_PER_S)
    bench.answering = set(PEERS)
    assert bench.probes.isolated(bench.now)
    assert bench.probes.awareness == TIMES.patience
    bench.run(6)
    assert {bench.probes.peer_states.state(name) for name in PEERS} == {State.ALIVE}
    assert not bench.probes.isolated(bench.now)
    assert peer in PEERS


def test_a_suspicion_does_not_age_while_no_peer_has_answered_for_two_periods() -> None:
    bench = suspecting_d()
    bench.run(TIMES.suspicion_min_ns / NS_PER_S - 2.5)
    bench.answering = set()
    bench.run(3.5)
    assert bench.probes.peer_states.state("d") is State.SUSPECT


def test_a_tick_that_is_late_by_less_than_an_interval_is_nothing() -> None:
    bench = Bench()
    bench.answering = set(PEERS)
    for _ in range(20):
        bench.tick(2 * TICK)
    assert bench.probes.awareness == 0
    bench.tick(2 * TICK + 1)
    assert bench.probes.awareness == 1


def test_a_dead_peer_that_gossips_is_probed_at_once_and_at_most_once_a_period() -> None:
    bench = Bench()
    dead = Rumour(subject("d"), 4, 0, State.DEAD)
    bench.probes.peer_states.take(dead, 0)
    bench.probes.gossip_came("b")
    bench.probes.gossip_came("d")
    told = [(peer, m) for peer, m in bench.tick() if m.kind is Kind.PROBE]
    assert [(peer, m.rumours[0]) for peer, m in told] == [("d", dead)]
    bench.said.clear()
    for _ in range(10):
        bench.probes.gossip_came("d")
        bench.tick()
    # Its repetition.
    assert [m.sequence for peer, m in bench.said if peer == "d"] == [told[0][1].sequence]


def test_a_dead_peer_that_gossips_without_refuting_is_probed_once_a_period() -> None:
    """An attacker has spread a rumour with the largest counter, which no refutation exceeds."""
    bench = answered()
    for peer in ("c", "d"):
        lie = Rumour(subject(peer), LIVES[peer], 2**32 - 1, State.DEAD)
        bench.hear("b", Kind.ACK, 0, "b", lie)
    bench.said.clear()
    for _ in range(200):
        for peer in PEERS:
            bench.probes.gossip_came(peer)
        bench.tick()
    for peer in ("c", "d"):
        # Of its own accord, too, once in five periods.
        assert 10 <= sum(to == peer for to, _ in bench.said) <= 13


def test_a_peer_that_was_never_heard_of_is_not_accused() -> None:
    bench = Bench(met=("b", "c"))
    bench.answering = {"b", "c"}
    bench.run(20)
    assert bench.probes.peer_states.state("d") is None
    assert bench.probes.awareness == 0


@pytest.mark.parametrize("state", [State.DEAD, State.LEFT])
def test_a_liar_can_prevent_refutations_of_one_life_only(state: State) -> None:
    """The liar has the key; docs/security.md states the harm."""
    bench = Bench()
    bench.hear("b", Kind.PROBE, 0, "a", Rumour(subject("c"), LIVES["c"], 2**32 - 1, state))
    bench.hear("c", Kind.PROBE, 0, "a", Rumour(subject("c"), LIVES["c"], 2**32 - 1, State.ALIVE))
    assert bench.probes.peer_states.state("c") is state
    bench.probes.meet("c", 99, bench.now)
    assert bench.probes.peer_states.state("c") is State.ALIVE
    # Of this limiter itself it raises the counter as far as it goes, once, and its doubt.
    bench.hear("b", Kind.PROBE, 0, "a", Rumour(subject("a"), 1, 2**32 - 1, State.DEAD))
    assert (bench.probes.counter, bench.probes.awareness) == (2**32 - 1, 1)
    bench.hear("b", Kind.PROBE, 0, "a", Rumour(subject("a"), 1, 2**32 - 1, State.DEAD))
    assert (bench.probes.counter, bench.probes.awareness) == (2**32 - 1, 1)
    assert not bench.probes.isolated(bench.now)
    for _, message in bench.tick():
        encode_control(message)


def test_a_limiter_that_was_alone_for_an_hour_has_missed_nothing() -> None:
    bench = Bench()
    bench.answering = set(PEERS)
    bench.run(3)
    bench.probes.set_peers((), TIMES, config_digest(1))
    bench.run(1)
    bench.now += 3600 * NS_PER_S
    assert not bench.probes.isolated(bench.now)
    bench.probes.set_peers(("e",), TIMES, config_digest(1))
    bench.tick()
    assert (bench.probes.awareness, bench.probes.isolated(bench.now)) == (0, False)
