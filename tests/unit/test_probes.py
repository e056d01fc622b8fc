"""Probes of one limiter, message by message."""

from __future__ import annotations

from random import Random

import pytest

from drld.gossip.health.broadcast_queue import subject
from drld.gossip.health.config_digest import ALL, SELECTOR_BITS, ConfigDigest, Selector
from drld.gossip.health.probe_times import ProbeTimes
from drld.gossip.health.probes import ABSENT_PERIODS, MAX_ANSWERS, MAX_ERRANDS, Probes
from drld.gossip.wire.control_codec import Control, Kind, Rumour, State
from drld.model import NS_PER_S
from drld.spec import ProbeSpec

from ..wire import encode_control

TICK = NS_PER_S // 20
TIMES = ProbeTimes.of(ProbeSpec(), 4, TICK, TICK)
PEERS = ("b", "c", "d")
LIVES = {"b": 2, "c": 3, "d": 4}


def _config_digest(*ids: int) -> ConfigDigest:
    return ConfigDigest(dict.fromkeys(ids, b""), NS_PER_S)


class Bench:
    """Limiter `a` and what it says; it has met `met`, and these answer, as long as `answering`."""

    def __init__(self, met: tuple[str, ...] = PEERS, peers: tuple[str, ...] = PEERS) -> None:
        self.probes = Probes("a", 1, peers, TIMES, _config_digest(1))
        self.rng = Random(1)
        self.now = 0
        self.said: list[tuple[str, Control]] = []
        self.answering: set[str] = set()
        for peer in met:
            self.probes.meet(peer, LIVES[peer], 0)

    def tick(self, ns: int = TICK) -> list[tuple[str, Control]]:
        self.now += ns
        said = self.probes.tick(self.now, self.rng)
        self.said += said
        for peer, message in said:
            if peer in self.answering and message.kind is not Kind.ACK:
                self.answer(peer, message)
        return said

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * NS_PER_S / TICK)):
            self.tick()

    def until(self, kind: Kind) -> tuple[str, Control]:
        for _ in range(1000):
            for said in self.tick():
                if said[1].kind is kind:
                    return said
        raise AssertionError(kind)

    def hear(self, peer: str, kind: Kind, sequence: int, target: str, *rumours: Rumour) -> None:
        digest = self.probes.config_digest.digest(Selector.of(sequence))
        message = Control(kind, sequence, subject(target), digest, rumours)
        self.probes.receive(peer, message, self.now)

    def answer(self, peer: str, message: Control, *rumours: Rumour) -> None:
        self.hear(peer, Kind.ACK, message.sequence, peer, *rumours)


def answered() -> Bench:
    """All answer it, for three seconds and on."""
    bench = Bench()
    bench.answering = set(PEERS)
    bench.run(3)
    return bench


def suspecting_d() -> Bench:
    """All accuse `d`, which falls silent, at this moment."""
    bench = answered()
    bench.answering = {"b", "c"}
    bench.probes.peer_states.accuse("d", 63, bench.now)
    return bench


def alive(name: str, counter: int = 0) -> Rumour:
    return Rumour(subject(name), LIVES.get(name, 1), counter, State.ALIVE)


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


def test_a_peer_that_was_never_heard_of_is_not_accused() -> None:
    bench = Bench(met=("b", "c"))
    bench.answering = {"b", "c"}
    bench.run(20)
    assert bench.probes.peer_states.state("d") is None
    assert bench.probes.awareness == 0


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


@pytest.mark.parametrize("state", [State.DEAD, State.LEFT])
def test_a_liar_can_prevent_refutations_of_one_life_only(state: State) -> None:
    """He has the key; docs/security.md says what it comes to."""
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


def test_limits_that_differ_are_named() -> None:
    bench = Bench(peers=("b",), met=("b",))
    other = _config_digest(1, 77)
    bench.probes.receive("b", Control(Kind.PROBE, 0, subject("a"), other.digest(ALL)), 0)
    assert bench.probes.config_digest.disagreements() == {"b": []}
    for _ in range(100):
        for _, message in bench.tick():
            if message.kind is Kind.PROBE:
                digest = other.digest(Selector.of(message.sequence))
                answer = Control(Kind.ACK, message.sequence, subject("b"), digest)
                bench.probes.receive("b", answer, bench.now)
    assert bench.probes.config_digest.disagreements() == {"b": [77]}


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


def test_a_limiter_that_was_alone_for_an_hour_has_missed_nothing() -> None:
    bench = Bench()
    bench.answering = set(PEERS)
    bench.run(3)
    bench.probes.set_peers((), TIMES, _config_digest(1))
    bench.run(1)
    bench.now += 3600 * NS_PER_S
    assert not bench.probes.isolated(bench.now)
    bench.probes.set_peers(("e",), TIMES, _config_digest(1))
    bench.tick()
    assert (bench.probes.awareness, bench.probes.isolated(bench.now)) == (0, False)
