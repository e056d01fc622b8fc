"""Probes of one limiter, message by message."""

from __future__ import annotations

import pytest

from drld.gossip.health.broadcast_queue import subject
from drld.gossip.health.config_digest import ALL, SELECTOR_BITS, Selector
from drld.gossip.health.probes import ABSENT_PERIODS, MAX_ANSWERS, MAX_ERRANDS
from drld.gossip.wire.control_codec import Control, Kind, Rumour, State
from drld.model import NS_PER_S

from .probe_bench import LIVES, PEERS, TIMES, Bench, alive, config_digest


def test_a_limiter_probes_one_peer_a_period_and_all_in_turn() -> None:
    bench = Bench()
    bench.answering = set(PEERS)
    bench.run(12)
    probed = [peer for peer, message in bench.said if message.kind is Kind.PROBE]
    assert 11 <= len(probed) <= 12
    for start in range(0, 9, 3):
        assert set(probed[start : start + 3]) == set(PEERS)
    assert {message.kind for _, message in bench.said} == {Kind.PROBE}


def test_a_probe_is_answered_with_its_number() -> None:
    bench = Bench()
    bench.hear("b", Kind.PROBE, 5 << 21, "a")
    (answer,) = bench.tick()
    assert (answer[0], answer[1].kind, answer[1].sequence) == ("b", Kind.ACK, 5 << 21)
    assert answer[1].target == subject("a")


def test_a_probe_of_another_limiter_is_not_answered() -> None:
    bench = Bench()
    bench.hear("b", Kind.PROBE, 5 << 21, "c")
    assert bench.tick() == []


def test_a_peer_that_does_not_answer_is_probed_through_others_and_then_suspected() -> None:
    bench = Bench()
    peer, probe = bench.until(Kind.PROBE)
    began = bench.now
    bench.until(Kind.PROBE_REQUEST)
    assert bench.now - began == TIMES.timeout_ns
    asked = {to for to, message in bench.said if message.kind is Kind.PROBE_REQUEST}
    assert asked == set(PEERS) - {peer}
    assert [m.sequence for to, m in bench.said if to == peer] == [probe.sequence] * 2
    while bench.probes.peer_states.state(peer) is State.ALIVE:
        bench.tick()
    assert bench.now - began == TIMES.period_ns
    assert bench.probes.peer_states.state(peer) is State.SUSPECT


def test_an_answer_through_a_helper_counts() -> None:
    bench = Bench()
    peer, probe = bench.until(Kind.PROBE)
    helper, _ = bench.until(Kind.PROBE_REQUEST)
    bench.hear(helper, Kind.ACK, probe.sequence, peer)
    bench.run(1.2)
    assert bench.probes.peer_states.state(peer) is State.ALIVE


def test_an_answer_of_a_limiter_that_was_not_asked_is_ignored() -> None:
    bench = Bench()
    peer, probe = bench.until(Kind.PROBE)
    other = next(name for name in PEERS if name != peer)
    bench.hear(other, Kind.ACK, probe.sequence, peer)
    bench.run(1.2)
    assert bench.probes.peer_states.state(peer) is State.SUSPECT


def test_a_helper_says_that_it_was_asked_and_passes_the_answer_on() -> None:
    bench = Bench()
    bench.hear("b", Kind.PROBE_REQUEST, 9 << 21, "c")
    said = bench.tick()
    assert [(to, m.kind, m.target) for to, m in said][:2] == [
        ("b", Kind.ACK, subject("a")),
        ("c", Kind.PROBE, subject("c")),
    ]
    bench.answer("c", said[1][1])
    (passed,) = [m for to, m in bench.tick() if to == "b" and m.kind is Kind.ACK]
    assert (passed.sequence, passed.target) == (9 << 21, subject("c"))


def test_helpers_that_were_not_heard_make_it_doubt_itself_and_wait_longer() -> None:
    bench = Bench()
    bench.until(Kind.PROBE_REQUEST)
    bench.run(0.6)
    assert bench.probes.awareness == 2
    fresh = Bench()
    _, probe = fresh.until(Kind.PROBE)
    fresh.until(Kind.PROBE_REQUEST)
    helpers = {to for to, m in fresh.said if m.kind is Kind.PROBE_REQUEST}
    for helper in helpers:
        fresh.hear(helper, Kind.ACK, probe.sequence, helper)
    fresh.run(0.6)
    assert fresh.probes.awareness == 0


def test_absent_peers_are_probed_rarely_and_not_judged() -> None:
    bench = Bench()
    bench.answering = {"b", "c"}
    bench.probes.peer_states.take(Rumour(subject("d"), 4, 0, State.DEAD), 0)
    bench.run(10 * ABSENT_PERIODS)
    probed = [peer for peer, message in bench.said if message.kind is Kind.PROBE]
    assert probed.count("b") + probed.count("c") in (10 * ABSENT_PERIODS - 1, 10 * ABSENT_PERIODS)
    # Each is repeated once.
    assert 18 <= probed.count("d") <= 20
    assert bench.probes.awareness == 0
    assert not [m for _, m in bench.said if m.kind is Kind.PROBE_REQUEST]


def test_a_peer_gets_few_probes_of_others_a_period_however_soon_they_are_answered() -> None:
    bench = Bench()
    bench.answering = {"c", "d"}
    for number in range(100):
        for requester, target in (("b", "c"), ("c", "d")):
            for _ in range(MAX_ANSWERS):
                bench.hear(requester, Kind.PROBE_REQUEST, number, target)
        bench.tick()
    probes = sum(message.kind is Kind.PROBE for _, message in bench.said)
    # In five or six periods, and those of its own.
    assert 5 * MAX_ERRANDS <= probes <= 6 * MAX_ERRANDS + 6


def test_a_handshake_repeats_a_probe_that_was_of_no_session() -> None:
    bench = Bench(met=(), peers=("b",))
    _, probe = bench.until(Kind.PROBE)
    bench.probes.meet("b", 2, bench.now)
    assert [m.sequence for _, m in bench.tick()] == [probe.sequence]


def test_a_limiter_that_leaves_tells_some_peers_and_expects_no_answer() -> None:
    bench = Bench()
    told = bench.probes.farewell(bench.rng)
    assert {peer for peer, _ in told} == set(PEERS)
    for _, message in told:
        assert message.kind is Kind.ACK
        assert message.rumours == (Rumour(subject("a"), 1, 0, State.LEFT),)


@pytest.mark.parametrize("kind", [Kind.PROBE, Kind.PROBE_REQUEST])
def test_the_answers_to_a_peer_in_a_tick_are_bounded(kind: Kind) -> None:
    """The bound holds for any kind of message, and costs no other peer an answer."""
    bench = Bench()
    for number in range(100):
        target = "a" if kind is Kind.PROBE else "c"
        bench.hear("b", kind, number << SELECTOR_BITS, target)
    bench.hear("c", Kind.PROBE, 7 << SELECTOR_BITS, "a")
    told = [peer for peer, message in bench.tick() if message.kind is Kind.ACK]
    assert (told.count("b"), told.count("c")) == (MAX_ANSWERS, 1)
    bench.hear("b", kind, 7 << SELECTOR_BITS, "a")
    assert "b" in [peer for peer, message in bench.tick() if message.kind is Kind.ACK]


def test_a_message_counts_although_it_is_not_answered() -> None:
    bench = Bench()
    for number in range(MAX_ANSWERS):
        bench.hear("b", Kind.PROBE, number << SELECTOR_BITS, "a")
    bench.hear("b", Kind.PROBE, 99 << SELECTOR_BITS, "a", Rumour(subject("c"), 3, 0, State.DEAD))
    assert bench.probes.peer_states.state("c") is State.DEAD


def test_limits_that_differ_are_named() -> None:
    bench = Bench(peers=("b",), met=("b",))
    other = config_digest(1, 77)
    bench.probes.receive("b", Control(Kind.PROBE, 0, subject("a"), other.digest(ALL)), 0)
    assert bench.probes.config_digest.disagreements() == {"b": {}}
    for _ in range(100):
        for _, message in bench.tick():
            if message.kind is Kind.PROBE:
                digest = other.digest(Selector.of(message.sequence))
                answer = Control(Kind.ACK, message.sequence, subject("b"), digest)
                bench.probes.receive("b", answer, bench.now)
    assert bench.probes.config_digest.disagreements() == {"b": {77: True}}


def test_dead_peers_are_not_asked_about_their_limits() -> None:
    bench = Bench()
    bench.answering = {"b", "c"}
    bench.run(3)
    bench.probes.peer_states.take(Rumour(subject("d"), 4, 0, State.DEAD), bench.now)
    bench.probes.config_digest.compare("d", ALL, 77)
    bench.said.clear()
    bench.run(30)
    asked = [message for peer, message in bench.said if peer == "d"]
    assert {Selector.of(message.sequence) for message in asked} == {ALL}


def test_a_reload_keeps_states_and_rumours() -> None:
    bench = Bench()
    bench.probes.peer_states.take(Rumour(subject("c"), 3, 0, State.DEAD), 0)
    changed = bench.probes
    changed.set_peers(("c", "e"), TIMES, changed.config_digest)
    assert changed.peer_states.state("c") is State.DEAD
    assert changed.peer_states.state("e") is None
    assert changed.life == 1
    with pytest.raises(KeyError):
        changed.peer_states.state("b")


def test_a_reload_goes_on_with_rumours_and_probes_of_those_that_stay() -> None:
    bench = Bench()
    waiting = bench.probes._pending
    while {probe.peer for probe in waiting.values()} != set(PEERS):
        assert bench.now < 60 * NS_PER_S
        bench.tick()
    dead = {peer: Rumour(subject(peer), LIVES[peer], 0, State.DEAD) for peer in ("c", "d")}
    bench.hear("b", Kind.ACK, 0, "b", *dead.values())
    changed = bench.probes
    changed.set_peers(("b", "c", "e"), TIMES, changed.config_digest)
    assert {probe.peer for probe in changed._pending.values()} == {"b", "c"}
    assert changed._pending.keys() < waiting.keys()
    told = changed._broadcasts.take(10)
    assert dead["c"] in told
    assert dead["d"] not in told
    # A new peer hears of this limiter.
    assert alive("a") in told
