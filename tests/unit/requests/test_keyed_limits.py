"""Limits with a bucket for each key: one limiter's decisions, and a fleet on a simulated network.

The fleet's messages are datagrams of the real codec, numbered by their sessions as the transport
numbers them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld import config
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.message import MAX_CONTENT, NumberedCodec, codec_of
from drld.gossip.wire.messenger import Deliver
from drld.gossip.wire.session import Met
from drld.model import NS_PER_S, Enforcement
from drld.requests.buckets.delta_codec import KIND, Form, Part
from drld.requests.datapath import RequestDatapath
from drld.requests.keyed_limit import TEXTS, KeyedLimit, Terms
from drld.requests.keyed_limits import CONTACT_NS, PING_NS, KeyedLimits
from drld.requests.keys import KeyHash, fleet_secret, ring_of_deltas
from drld.requests.model import Answer, Request
from drld.requests.registered.replay import Replay
from drld.requests.spec import ITEM
from testbed.sim.mailbox import Content, Datagram, Mailbox
from testbed.sim.network import Conditions, Network
from testbed.tcp.clock import Clock

from .good import GOOD

MS = 1_000_000
START_NS = 10**6 * NS_PER_S
SECRET = b"of a fleet"
KEYED = GOOD.replace('"api" }', '"api", per = ["user"] }').replace("100/s", "1/min")
KEYED = KEYED.replace("burst = 200", "burst = 20")


class Socket(Mailbox):
    """The second socket of a limiter; a body crosses it as its bytes."""

    def __init__(self, name: str, clock: Clock, network: Network[Datagram]) -> None:
        super().__init__(name, clock, network)
        self._number = 0
        # No peer knows it before their handshake, as in a real fleet.
        self.restart()

    @property
    def life(self) -> int:
        return incarnation(self._name, self._lives.mine)

    def send(self, peer: str, kind: int, body: Any) -> int | None:
        codec = codec_of(kind)
        assert isinstance(codec, NumberedCodec)
        self._number += 1
        content = codec.encode(body, 0, self._number)
        assert len(content) <= MAX_CONTENT
        super().send(peer, kind, codec.decode_untrusted(content))
        return self._number if self._lives.seal(peer, Content(0, None)).content else None

    def receive(self, deliver: Deliver, refused: Mapping[int, str] = MappingProxyType({})) -> None:
        def met(peer: str, kind: int, body: Any) -> None:
            whole = Met(incarnation(peer, body.life)) if isinstance(body, Met) else body
            deliver(peer, kind, whole)

        super().receive(met, refused)


def incarnation(name: str, life: int) -> int:
    return 1000 * int(name[1:]) + life


class Limiter:
    """One limiter of a fleet."""

    def __init__(self, fleet: Fleet, name: str, text: str) -> None:
        self.fleet = fleet
        self.name = name
        self.socket = Socket(name, fleet.clock, fleet.network)
        self.begin(text)
        fleet.clock.at(fleet.clock.now_ns + fleet.rng.randrange(50 * MS), self.look)

    def begin(self, text: str) -> None:
        """A daemon starts: it knows nothing."""
        terms = Terms(0, SECRET, 50 * MS, len(self.fleet.names))
        self.keyed = KeyedLimits(terms, Random(self.name))
        self.keyed.connect(self.socket)
        self.datapath = RequestDatapath(Random(self.name), b"callers", keyed=self.keyed)
        self.follow(text)

    def follow(self, text: str, peers: set[str] | None = None) -> None:
        """Take a configuration over."""
        now_ns = self.fleet.clock.now_ns
        limits = config.parse(text, "f").limits
        self.datapath.attach([(it, Enforcement()) for it in limits], now_ns)
        names = (self.fleet.names if peers is None else peers) - {self.name}
        self.socket.update_peers(dict.fromkeys(names))
        self.keyed.configure(names, 50 * MS, SECRET, now_ns)

    def look(self, _: object = None) -> None:
        """Each two milliseconds, as a daemon that is woken by its socket and by rounds."""
        clock = self.fleet.clock
        clock.at(clock.now_ns + 2 * MS, self.look)
        if self.name not in self.fleet.down:
            self.keyed.tick(clock.now_ns)

    def ask(self, user: str, cost: int = 1, **more: Any) -> Answer:
        request = Request("api", {"user": user}, cost, **more)
        return self.datapath.decide(request, self.fleet.clock.now_ns)

    def level(self, user: str) -> float:
        keyed = self.keyed.limits[1]
        return keyed.replica.level(keyed.key(user.encode()), self.fleet.clock.now_ns)


class Fleet:
    """Limiters under virtual time."""

    def __init__(self, size: int, seed: int = 1, text: str = KEYED, **conditions: Any) -> None:
        self.clock = Clock(START_NS)
        self.rng = Random(seed)
        self.network: Network[Datagram] = Network(
            seed, Conditions(**({"delay_ns": 2 * MS} | conditions))
        )
        self.names = {f"l{number}" for number in range(size)}
        self.down: set[str] = set()
        self.limiters = [Limiter(self, name, text) for name in sorted(self.names)]
        self.run(200)

    def run(self, time_ms: int) -> None:
        self.clock.run(self.clock.now_ns + time_ms * MS)

    def ask_in_turn(self, user: str, count: int, every_ms: int = 5) -> int:
        """Requests of one user at limiters in turn; return how many are admitted."""
        admitted = 0
        for number in range(count):
            admitted += self.limiters[number % len(self.limiters)].ask(user).admitted
            self.run(every_ms)
        return admitted


def test_a_user_s_limit_holds_over_the_fleet_and_others_are_unaffected() -> None:
    fleet = Fleet(3)
    assert fleet.ask_in_turn("alice", 60) == 20
    assert fleet.ask_in_turn("bob", 5) == 5
    assert {round(it.level("alice")) for it in fleet.limiters} == {20}
    answer = fleet.limiters[1].ask("alice")
    assert answer.refused is not None
    assert answer.refused.limit.name == "api"
    assert answer.retry_ns is not None
    assert 50 * NS_PER_S < answer.retry_ns <= 60 * NS_PER_S
    # What is asked for at cost 0, and what is refused, leaves no trace.
    fleet.run(300)
    before = fleet.limiters[2].level("bob")
    assert fleet.limiters[2].ask("bob", 0).admitted
    assert not fleet.limiters[2].ask("bob", 19).admitted
    assert fleet.limiters[2].level("bob") == before


@pytest.mark.parametrize("seed", range(4))
def test_news_get_through_losses_repetitions_and_reordering(seed: int) -> None:
    fleet = Fleet(4, seed, jitter_ns=60 * MS, loss=0.4, duplicate=0.2)
    fleet.run(2000)
    users = [f"u{number}" for number in range(15)]
    for user in users:
        fleet.limiters[fleet.rng.randrange(4)].ask(user, fleet.rng.randrange(1, 15))
    fleet.network.conditions = Conditions(delay_ns=2 * MS, loss=0.2)
    fleet.run(3000)
    for user in users:
        levels = [it.level(user) for it in fleet.limiters]
        # A cell that came late is dated as much too late: 0.2 s are 1 / 300 of a token.
        assert max(levels) - min(levels) < 0.01
        assert fleet.limiters[0].level(user) > 0.5
    assert all(it.keyed.limits[1].replica.settled for it in fleet.limiters)


def test_a_limiter_that_starts_anew_is_told_what_it_admitted_itself() -> None:
    fleet = Fleet(3)
    for number in range(200):
        fleet.limiters[0].ask(f"u{number}", 15)
    fleet.run(1000)
    one = fleet.limiters[0]
    one.socket.restart()
    one.begin(KEYED)
    assert one.level("u7") == 0
    fleet.run(1500)
    assert all(round(one.level(f"u{number}")) == 15 for number in range(200))
    assert not one.ask("u7", 15).admitted
    # Its new cells are its own; the old ones stay those of an ended life.
    assert one.ask("u7", 5).admitted
    fleet.run(500)
    assert {round(it.level("u7")) for it in fleet.limiters} == {20}


@pytest.mark.parametrize("burst", [20, 100])
def test_a_limiter_that_starts_anew_knows_keys_that_always_use_their_rate(burst: int) -> None:
    """What is older than a full bucket is in no cell any more, and still in use; a row of many
    cells takes several datagrams."""
    text = KEYED.replace("1/min", "10/s").replace("burst = 20", f"burst = {burst}")
    fleet = Fleet(3, text=text)
    one, two, three = fleet.limiters
    for number in range(1000):
        (two, three)[number // 3 % 2].ask("alice")
        fleet.run(20)
    assert two.level("alice") > burst - 2
    one.socket.restart()
    one.begin(text)
    fleet.run(300)
    # Copies of two peers, of different rounds, count some tokens twice; none is left out.
    assert 0 <= one.level("alice") - two.level("alice") < 4


def test_what_a_silent_peer_misses_is_not_kept_and_told_when_it_is_heard_again() -> None:
    fleet = Fleet(3)
    away = fleet.limiters[2]
    others = {"l0", "l1"}
    fleet.network.partition(others, {"l2"})
    fleet.run((CONTACT_NS + 2 * PING_NS) // MS)
    replica = fleet.limiters[0].keyed.limits[1].replica
    assert set(replica.pending) == {"l1"}
    assert fleet.limiters[0].keyed.contacts == 1
    # Each side is a fleet of its own.
    assert sum(fleet.limiters[0].ask("alice").admitted for _ in range(30)) == 20
    assert sum(away.ask("alice").admitted for _ in range(30)) == 20
    fleet.network.cut.clear()
    fleet.run(3000)
    assert {round(it.level("alice")) for it in fleet.limiters} == {40}


def test_peers_come_and_go_by_reload() -> None:
    fleet = Fleet(3)
    fleet.limiters[0].ask("alice", 12)
    fleet.run(300)
    for limiter in fleet.limiters[:2]:
        limiter.follow(KEYED, {"l0", "l1"})
    assert set(fleet.limiters[0].keyed.limits[1].replica.pending) == {"l1"}
    fleet.run(1200)
    assert fleet.limiters[1].socket.rejected["address"] > 0
    for limiter in fleet.limiters[:2]:
        limiter.follow(KEYED)
    assert not fleet.limiters[1].ask("alice", 9).admitted
    fleet.run(1500)
    assert {round(it.level("alice")) for it in fleet.limiters} == {12}


def test_what_may_wait_follows_the_size_of_the_fleet() -> None:
    """A round for each limiter: what waits is told then, however many there were at the start."""

    def late_ms(fleet: Fleet) -> int:
        one, others = fleet.limiters[0], fleet.limiters[1:]
        fleet.run(2000)
        before = others[0].level("zoe")
        one.ask("zoe")
        for waited_ms in range(0, 2000, 10):
            if others[0].level("zoe") > before + 0.5:
                return waited_ms
            fleet.run(10)
        raise AssertionError

    text = KEYED.replace("burst = 20", "burst = 200")
    fleet = Fleet(10, text=text)
    pair = fleet.limiters[:2]
    most = {2: 2 * 50 + 60, 10: 10 * 50 + 60}
    for limiter in pair:
        limiter.follow(text, {"l0", "l1"})
    assert late_ms(fleet) <= most[2]
    for limiter in pair:
        limiter.follow(text)
    assert most[2] + 200 < late_ms(fleet) <= most[10]
    for limiter in pair:
        limiter.follow(text, {"l0", "l1"})
    assert late_ms(fleet) <= most[2]


@pytest.mark.parametrize("bucket", ["ledger", "queue"])
def test_a_reload_of_the_fleet_keeps_levels_and_decides_as_a_start(bucket: str) -> None:
    text = KEYED + f'bucket = "{bucket}"\n'
    fleet = Fleet(3, text=text)
    one = fleet.limiters[0]
    for number in range(50):
        one.ask(f"u{number}", 3 + number % 5)
    levels = [one.level(f"u{number}") for number in range(50)]
    one.follow(text, {"l0", "l1", "l2", *(f"x{number}" for number in range(60))})
    assert [one.level(f"u{number}") for number in range(50)] == levels
    known = one.keyed.limits[1].replica
    fresh = KeyedLimit(one.keyed.limits[1].limit, one.keyed._terms).replica
    assert (known._slack, known._frequency, known._repeat_ns) == (
        fresh._slack, fresh._frequency, fresh._repeat_ns
    )  # fmt: skip
    for key in known.buckets:
        own, new = known.buckets[key], fresh._make(key)
        assert getattr(own, "_shape", None) == getattr(new, "_shape", None)


def test_a_reload_keeps_levels_in_tokens() -> None:
    fleet = Fleet(2)
    one = fleet.limiters[0]
    one.ask("alice", 12)
    one.follow(KEYED.replace("1/min", "30/min").replace("burst = 20", "burst = 40"))
    assert round(one.level("alice")) == 12
    answer = one.ask("alice", 28)
    assert answer.admitted
    assert answer.standings[0].limit.policy.burst == 40 * ITEM
    # Another key is another limit: its buckets begin full.
    one.follow(KEYED.replace('"user"', '"plan"'))
    assert not one.keyed.limits[1].replica.buckets


def test_keys_with_overrides_have_their_own_buckets() -> None:
    text = KEYED + 'overrides = [{ user = "bigco", burst = 50 }, { user = "mallory", burst = 1 }]\n'
    fleet = Fleet(2, text=text)
    assert fleet.ask_in_turn("bigco", 80) == 50
    assert fleet.ask_in_turn("mallory", 5) == 1
    assert fleet.ask_in_turn("alice", 30) == 20
    answer = fleet.limiters[0].ask("mallory", 5)
    assert answer.reason == (
        "its cost is above the burst of the limit api, 1 request: it never passes"
    )


def test_all_limits_are_charged_or_none() -> None:
    other = (
        KEYED.partition("[[limit]]")[2].replace("id = 1", "id = 2").replace('"api"', '"plan"', 1)
    )
    other = other.replace('per = ["user"]', 'per = ["plan"]').replace("burst = 20", "burst = 5")
    plain = other.replace("id = 2", "id = 3").replace('"plan"', '"all"', 1)
    plain = plain.replace(', per = ["plan"]', "").replace("burst = 5", "burst = 9")
    fleet = Fleet(1, text=f"{KEYED}\n[[limit]]{other}\n[[limit]]{plain}")
    one = fleet.limiters[0]
    now_ns = fleet.clock.now_ns

    def ask(user: str, plan: str) -> Answer:
        return one.datapath.decide(Request("api", {"user": user, "plan": plan}), now_ns)

    # The policer of the limit without keys has a bucket, as an engine would program it.
    one.datapath.program(3, Enforcement(fill_rate=1, depth=9 * ITEM), (), now_ns)
    assert [ask("a", "free").admitted for _ in range(6)] == [True] * 5 + [False]
    assert round(one.level("a")) == 5
    assert [ask("a", "gold").admitted for _ in range(6)] == [True] * 4 + [False] * 2
    assert round(one.level("a")) == 9
    gold = one.keyed.limits[2]
    assert round(gold.replica.level(gold.key(b"gold"), now_ns)) == 4
    # A request without a value for a key falls under the others alone.
    assert [it.limit.name for it in one.ask("a").standings] == ["api", "all"]


def test_modes() -> None:
    shadow = Fleet(1, text=KEYED.replace("burst = 20", 'burst = 20\nmode = "shadow"'))
    one = shadow.limiters[0]
    assert shadow.ask_in_turn("alice", 30) == 30
    measured = one.datapath.read(1, shadow.clock.now_ns)
    assert (measured.arrived_items, measured.dropped_items) == (30, 10)
    assert len(measured.flows) == 1
    paused = Fleet(1, text=KEYED.replace("burst = 20", 'burst = 20\nmode = "pause"'))
    assert paused.ask_in_turn("alice", 30) == 30
    assert paused.limiters[0].level("alice") == 0
    assert paused.limiters[0].ask("alice").standings[0].remaining is None


def test_a_part_of_a_cost_and_a_charge_after_the_fact() -> None:
    one = Fleet(1).limiters[0]
    answer = one.ask("alice", 30, at_least=5)
    assert (answer.admitted, answer.granted) == (True, 20)
    assert one.ask("bob", 35, charge=True).admitted
    assert round(one.level("bob")) == 35
    refused = one.ask("bob")
    assert refused.retry_ns == 16 * 60 * NS_PER_S


@pytest.mark.parametrize("bucket", ["queue", "counter"])
def test_the_thesis_buckets(bucket: str) -> None:
    fleet = Fleet(3, text=KEYED.replace("burst = 20", f'burst = 20\nbucket = "{bucket}"'))
    admitted = fleet.ask_in_turn("alice", 60, every_ms=100)
    assert 20 <= admitted <= 25
    assert fleet.ask_in_turn("bob", 5) == 5


def test_a_reload_that_changes_nothing_of_a_limit_leaves_its_buckets_alone() -> None:
    text = KEYED.replace("burst = 20", "burst = 20\nmax_keys = 1")
    one = Fleet(1, text=text).limiters[0]
    one.ask("alice")
    # A stranger, as all rows are taken.
    assert one.ask("bob", 20).admitted
    one.follow(text)
    assert not one.ask("bob").admitted


def test_a_queue_s_debt_is_at_most_its_burst() -> None:
    """A queue keeps an element for each token: 2^31 of them would stop the daemon."""
    one = Fleet(1, text=KEYED.replace("burst = 20", 'burst = 20\nbucket = "queue"')).limiters[0]
    for _ in range(2):
        assert one.ask("alice", 2**31 - 1, charge=True).admitted
        assert one.level("alice") == 40


def test_what_waits_to_be_sent_is_of_no_use_to_a_limit_that_begins_anew() -> None:
    text = KEYED.replace("burst = 20", 'burst = 20\nbucket = "queue"')
    fleet = Fleet(2, text=text)
    one = fleet.limiters[0]
    urgent: list[None] = []
    one.keyed.on_urgent = lambda: urgent.append(None)
    one.ask("alice", 10)
    assert urgent
    for limiter in fleet.limiters:
        limiter.follow(KEYED)
    fleet.run(200)
    assert [it.level("alice") for it in fleet.limiters] == [0, 0]


def test_deltas_that_cannot_be_of_use_are_counted() -> None:
    fleet = Fleet(2)
    one, two = fleet.limiters
    one.ask("alice", 9)
    fleet.run(200)
    two.follow(KEYED.replace('"user"', '"plan"'))
    one.ask("alice", 9)
    fleet.run(100)
    assert two.socket.rejected["settings"] > 0
    two.follow(KEYED.replace("id = 1", "id = 9"))
    fleet.run(500)
    assert two.socket.rejected["limit"] > 0
    # Once they agree again, what was not acknowledged is told.
    two.follow(KEYED)
    fleet.run(1000)
    assert round(two.level("alice")) == 18


def test_peers_cannot_fill_the_memory() -> None:
    fleet = Fleet(2, text=KEYED.replace("burst = 20", "burst = 20\nmax_keys = 10"))
    one, two = fleet.limiters
    one.keyed.limits[1].replica.buckets.max_keys = 10**6
    for number in range(50):
        one.ask(f"u{number}", 9)
    fleet.run(300)
    assert len(two.keyed.limits[1].replica.buckets) == 10
    assert two.keyed.limits[1].replica.buckets.unkept >= 40


def test_what_a_limiter_alone_admits_is_told_to_nobody() -> None:
    fleet = Fleet(1)
    assert fleet.ask_in_turn("alice", 30) == 20
    fleet.run(2000)
    assert fleet.network.sent == 0


def test_drained_buckets_leave() -> None:
    fleet = Fleet(2, text=KEYED.replace("1/min", "100/s"))
    fleet.ask_in_turn("alice", 40)
    fleet.run(15_000)
    assert not any(it.keyed.limits[1].replica.buckets for it in fleet.limiters)


def test_texts_of_the_last_keys_alone_are_remembered() -> None:
    one = Fleet(1).limiters[0]
    keyed = one.keyed.limits[1]
    first = keyed.key(b"first")
    for number in range(TEXTS):
        assert keyed.last_keys()[first] == "first"
        key = keyed.key(b"%d\xff%d" % (number, number))
        assert keyed.last_keys()[key] == f"{number}, {number}"
    for number in range(2 * TEXTS):
        keyed.key(b"%d" % number)
        assert len(keyed.last_keys()) <= 2 * TEXTS
    assert first not in keyed.last_keys()
    assert keyed.key(b"first") == first


def test_keys_follow_from_the_key_in_use() -> None:
    plain, old, new = (
        KeyRing(),
        KeyRing({1: b"k" * 16}, 1),
        KeyRing({1: b"k" * 16, 2: b"l" * 16}, 2),
    )
    secrets = [fleet_secret(ring) for ring in (plain, old, new)]
    assert len({*secrets}) == 3
    # A key that is installed and not used changes nothing yet.
    assert fleet_secret(KeyRing(new.keys, 1)) == secrets[1]
    keys = {KeyHash(secret)(b"alice") for secret in secrets}
    assert len(keys) == 3
    hashed = KeyHash(secrets[0])
    assert len({hashed(it) for it in (b"ab\xffc", b"a\xffbc", b"abc", b"abc\xff")}) == 4
    deltas = ring_of_deltas(old)
    assert (deltas.use, deltas.keys.keys()) == (1, old.keys.keys())
    assert deltas.keys[1] != old.keys[1]


def test_a_ping_says_nothing() -> None:
    fleet = Fleet(2)
    part = Part(0, Form.LEDGER, (), ())
    assert fleet.limiters[0].socket.send("l1", KIND, part) is not None
    fleet.run(50)
    assert not fleet.limiters[1].socket.rejected


def test_replays_know_keys() -> None:
    limits = config.parse(KEYED, "f").limits
    lines = [
        json.dumps({"t": 1_700_000_000 + second, "namespace": "api", "descriptor": {"user": user}})
        for second in range(30) for user in ("alice", "bob")
    ]  # fmt: skip
    replay = Replay(io.BytesIO("\n".join(lines).encode()), "", limits, "static", Random(1))
    list(replay.run())
    (result,) = replay.results()
    assert (result["arrived_packets"], result["forwarded_packets"]) == (60, 40)


def test_a_registry_holds_limits_with_keys() -> None:
    written = {
        "id": 7, "name": "user", "rate": "100/min", "burst": 50, "max_keys": 10,
        "match": {"namespace": "api", "per": ["user"]},
        "overrides": [{"user": "bigco", "burst": 90}],
    }  # fmt: skip
    limit = config.read_limit(written, "etcd", 50 * MS)
    assert limit.policy.means == "ledger"
    assert limit.policy.keyed is not None
    assert limit.policy.keyed.overrides[0].burst == 90 * ITEM


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_nothing_is_lost_or_counted_twice(data: st.DataObject) -> None:
    """This holds under loss, repetition, reordering and cuts, and after restarts."""
    draw = data.draw
    fleet = Fleet(
        3, draw(st.integers(0, 999)), text=KEYED.replace("1/min", "9/d").replace("20", "900"),
        jitter_ns=draw(st.integers(0, 80)) * MS, loss=draw(st.sampled_from([0.0, 0.3])),
        duplicate=0.2,
    )  # fmt: skip
    admitted = dict.fromkeys(("a", "b"), 0)
    for _ in range(draw(st.integers(1, 12))):
        number = draw(st.integers(0, 2))
        limiter = fleet.limiters[number]
        match draw(st.sampled_from(["ask", "ask", "wait", "cut", "heal", "restart"])):
            case "ask":
                user, cost = draw(st.sampled_from(["a", "b"])), draw(st.integers(1, 40))
                answer = limiter.ask(user, cost)
                admitted[user] += cost if answer.admitted else 0
            case "wait":
                fleet.run(draw(st.integers(1, 400)))
            case "cut":
                fleet.network.partition({limiter.name}, fleet.names - {limiter.name})
            case "heal":
                fleet.network.cut.clear()
            case "restart":
                fleet.network.cut.clear()
                fleet.run(4000)
                limiter.socket.restart()
                limiter.begin(KEYED.replace("1/min", "9/d").replace("20", "900"))
    fleet.network.cut.clear()
    fleet.network.conditions = Conditions(delay_ns=2 * MS)
    fleet.run(4000)
    for user, tokens in admitted.items():
        assert [round(it.level(user)) for it in fleet.limiters] == [tokens] * 3
