"""Limits with a bucket for each key: one limiter's decisions, and a fleet on a simulated network.

The fleet's messages are datagrams of the real codec, numbered by their sessions as the transport
numbers them.
"""

from __future__ import annotations

import io
import json
from random import Random

import pytest

from drld import config
from drld.gossip.wire.keyring import KeyRing
from drld.model import NS_PER_S, Enforcement
from drld.requests.keyed_limit import TEXTS
from drld.requests.keys import KeyHash, fleet_secret, ring_of_deltas
from drld.requests.model import Answer, Request
from drld.requests.registered.replay import Replay
from drld.requests.spec import ITEM

from .keyed_fleet import KEYED, MS, Fleet


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


def test_modes_shadow_and_pause_refuse_no_key() -> None:
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
def test_the_thesis_buckets_admit_the_burst_and_little_more(bucket: str) -> None:
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
