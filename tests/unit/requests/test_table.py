"""Rows of keys in bounded memory: rest, the hand, floods, and changes of policy."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pytest

from drld.requests.buckets.bucket import Key
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.replica import Message, Replica
from drld.requests.buckets.single import Single
from drld.requests.buckets.table import _MOST_PAST, SHARED_ROWS, Table
from drld.requests.buckets.urgency import Slack

MS = 1_000_000
S = 1000 * MS
EPOCH_NS = 10**6 * S
POLICY = Policy(capacity=4, rate=1)
A, B, C, D = range(20, 24)
USER, BIGCO, OTHER, DRAINED, RESTING, FRESH, FULL, NEW, NEWER = range(10, 19)
LIFE_S = 4 + 2
"""The life of a cell, s: a fill, and two margins."""


def ledger(policy: Policy = POLICY, origin: int = 1) -> Ledger:
    return Ledger(policy, origin, 300 * MS, S)


def replica(max_keys: int | None = None, **more: Any) -> Replica:
    return Replica(
        lambda _key: ledger(), ["l1"], slack=Slack(9 * S), max_keys=max_keys, **more
    )  # fmt: skip


def at_rest(table: Table) -> int:
    return len(table) - len([*table.active()])


def test_a_row_without_questions_comes_to_rest_and_wakes_as_it_was() -> None:
    one, awake = replica(), replica()
    for two in (one, awake):
        for key, number in ((A, 1), (B, 3), (C, 4)):
            two.charge(key, EPOCH_NS, number)
        # Cells of another limiter, which are older and newer.
        cells = tuple(Cell(9, slot, 1, age_ms) for slot, age_ms in ((1, 900), (2, 0), (3, 200)))
        two.receive("l1", Message(1, {B: cells, D: cells}), EPOCH_NS + S)
    one.sweep(EPOCH_NS + 2 * S, 10)
    one.sweep(EPOCH_NS + 2 * S, 10)
    assert at_rest(one.buckets) == 4
    assert one.busiest(9, EPOCH_NS + 2 * S) == [], "they are at rest"
    now_ns = EPOCH_NS + 2 * S
    for key in (A, B, C, D):
        assert one.level(key, now_ns) == awake.level(key, now_ns)
        assert one.decide(key, now_ns, 2) == awake.decide(key, now_ns, 2)
        assert one.buckets[key].everything() == awake.buckets[key].everything()
    assert at_rest(one.buckets) == 4, "a look wakes nobody"
    for at_ns in range(now_ns, now_ns + 9 * S, S // 2):
        for key in (A, B, C, D):
            assert one.take(key, at_ns)[0] == awake.take(key, at_ns)[0]
    assert at_rest(one.buckets) == 0


def test_the_hand_removes_drained_rows_alone() -> None:
    one = replica()
    one.take(DRAINED, EPOCH_NS)
    one.take(RESTING, EPOCH_NS)
    one.take(FRESH, EPOCH_NS + LIFE_S * S)
    one.sweep(EPOCH_NS + 2 * S, 2)
    assert at_rest(one.buckets) == 2, "in the order in which they woke"
    one.charge(RESTING, EPOCH_NS + 2 * S, 9)
    one.sweep(EPOCH_NS + 6 * S + 1, 9)
    assert {*one.buckets} == {RESTING, FRESH}
    assert one.level(RESTING, EPOCH_NS + 6 * S) == 5


def test_a_flood_of_fresh_keys_shares_rows_and_harms_no_known_user() -> None:
    one = replica(max_keys=100)
    known = [1000 + number for number in range(90)]
    rng = Random(1)
    for key in known:
        one.take(key, EPOCH_NS)
    one.charge(FULL, EPOCH_NS, 4)
    refused = 0
    for number in range(2000):
        now_ns = EPOCH_NS + number * MS
        one.take(rng.getrandbits(64), now_ns)
        if number % 20 == 0:
            # Each asks for less than its limit, once in 1.8 s.
            refused += not one.take(known[number // 20 % 90], now_ns)[0].admitted
    assert refused == 0
    assert len(one.buckets) == 100
    assert not one.decide(FULL, EPOCH_NS, 1).admitted, "who returns at a full level is refused"
    assert one.buckets.shared == 2000 - 9
    # Strangers limit each other: one of them finds the row that another has used.
    stranger, twin = 5, 5 + SHARED_ROWS
    for _ in range(4):
        assert one.take(stranger, now_ns)[0].admitted
    assert not one.decide(twin, now_ns, 1).admitted
    assert not one.take(twin, now_ns)[0].admitted
    # What peers tell of keys without a row is counted, and changes nothing.
    assert one.receive("l1", Message(1, {OTHER: (Cell(9, 1, 1, 0),)}), now_ns) == []
    assert (one.buckets.unkept, len(one.buckets)) == (1, 100)
    # When the flood is over, its rows drain, and make room.
    one.take(NEW, now_ns + 2 * LIFE_S * S)
    assert one.take(NEWER, now_ns + 2 * LIFE_S * S)[0].admitted
    assert NEWER in one.buckets


def test_rows_that_wake_let_others_rest_without_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drld.requests.buckets.table._MOST_AWAKE", 10)
    monkeypatch.setattr("drld.requests.buckets.table._WAKES", 1)
    one = replica()
    for key in range(100):
        one.take(key, EPOCH_NS + key * 100 * MS)
    # Those whose own slot is open stay awake.
    assert len([*one.buckets.active()]) <= 12
    assert len(one.buckets) >= 60


def test_honest_users_never_share() -> None:
    one = replica(max_keys=200)
    rng = Random(2)
    for number in range(5000):
        # 40 keys a second, each for a second: no more than 320 s of a life of 6 s are alive.
        now_ns = EPOCH_NS + number * 25 * MS
        one.take(number // 40 * 20 + rng.randrange(20), now_ns)
    assert (one.buckets.shared, one.buckets.unkept) == (0, 0)
    assert len(one.buckets) <= 200


@pytest.mark.parametrize("resting", [False, True])
def test_a_change_of_policy_reaches_each_row_when_it_is_needed(resting: bool) -> None:
    policies: dict[Key, Policy] = {BIGCO: Policy(40, 5)}
    now: dict[Key, Policy] = dict(policies)
    one = Replica(lambda key: ledger(now.get(key, POLICY)), ["l1"])
    one.charge(BIGCO, EPOCH_NS, 30)
    one.charge(USER, EPOCH_NS, 3)
    one.charge(OTHER, EPOCH_NS, 3)
    if resting:
        one.sweep(EPOCH_NS + S, 9)
        one.sweep(EPOCH_NS + S, 9)
        assert at_rest(one.buckets) == 3
    now[BIGCO] = now[USER] = Policy(80, 10)
    one.reconfigure(lambda key: now.get(key, POLICY), EPOCH_NS + S)
    assert len(one.buckets) == 3
    # At the old rates for one second, at the new ones since.
    assert one.level(BIGCO, EPOCH_NS + 2 * S) == 30 - 5 - 10
    assert one.level(USER, EPOCH_NS + S) == 2
    assert one.level(OTHER, EPOCH_NS + 2 * S) == 1
    assert one.take(USER, EPOCH_NS + S, 78)[0].admitted
    # Again, before the hand was everywhere.
    now[BIGCO] = POLICY
    one.reconfigure(lambda key: now.get(key, POLICY), EPOCH_NS + 2 * S)
    one.sweep(EPOCH_NS + 2 * S, 9)
    one.sweep(EPOCH_NS + 2 * S, 9)
    assert one.level(BIGCO, EPOCH_NS + 3 * S) == 15 - 1
    assert one.level(USER, EPOCH_NS + 2 * S) == 70


@pytest.mark.parametrize("resting", [False, True])
def test_rows_wait_for_the_hand_however_many_changes_of_policy_come(resting: bool) -> None:
    now = Policy(40, 1)
    one, at_once = (Replica(lambda _: ledger(now), ["l1"], slack=Slack(9 * S)) for _ in range(2))
    looks = 0

    def changed(rate: int) -> Any:
        nonlocal now
        now = wanted = Policy(40, rate)

        def policy(_: Key) -> Policy:
            nonlocal looks
            looks += 1
            return wanted

        return policy

    for number in range(_MOST_PAST):
        now_ns = EPOCH_NS + number * S
        for two in (one, at_once):
            two.charge(number, now_ns, 3)
            two.charge(USER, now_ns, 2)
            if resting:
                two.sweep(now_ns + S // 2, 99)
            looks = 0
            two.reconfigure(changed(1 + number), now_ns + S)
            if two is one:
                assert looks == 0, "a change goes through no rows"
            else:
                for key in [*two.buckets]:
                    two.level(key, now_ns + S)
    later_ns = EPOCH_NS + _MOST_PAST * S
    for key in range(_MOST_PAST):
        assert one.level(key, later_ns) == at_once.level(key, later_ns)
    # With one more, the change with the fewest rows is over at once.
    few, many = Table(lambda _: ledger(now)), range(100, 300)
    for key in many:
        few.row(key, EPOCH_NS)
    for number in range(_MOST_PAST + 1):
        few.reconfigure(changed(number + 1), EPOCH_NS)
        few.row(number, EPOCH_NS)
    looks = 0
    few.reconfigure(changed(1), EPOCH_NS)
    assert 0 < looks <= 2 * _MOST_PAST
    assert len(few) == len(many) + _MOST_PAST + 1


def test_a_copy_for_a_peer_has_all_keys_though_the_table_changes_meanwhile() -> None:
    one = replica(copied_keys=20, most=8)
    one.set_pace(None, Slack(S), None)
    for key in range(200):
        one.charge(key, EPOCH_NS, 3)
    one.round(EPOCH_NS + 2 * S, Random(1))
    one.returned("l1")
    told: set[Key] = set()
    for number in range(40):
        now_ns = EPOCH_NS + 2 * S + number
        told |= {key for _, it in one.round(now_ns, Random(1)) for key in it.deltas}
        # The table grows, and rows move to the present.
        for key in range(1000 + 50 * number, 1050 + 50 * number):
            one.buckets.row(key, now_ns)
        if number in (1, 3):
            one.reconfigure(lambda _: POLICY, now_ns)
        one.level(number, now_ns)
    assert told >= {*range(200)}


def test_copies_for_all_peers_take_little_memory() -> None:
    peers = [f"l{number}" for number in range(30)]
    one = Replica(lambda _: ledger(), peers, slack=Slack(9 * S), copied_keys=1)
    rng = Random(1)
    keys = 20_000
    for _ in range(keys):
        one.buckets.row(rng.getrandbits(64), EPOCH_NS)
    tracemalloc.start()
    for peer in peers:
        one.returned(peer)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < keys * len(peers), "a byte for each key and peer"


def test_a_peer_that_is_silent_for_long_is_told_everything_when_it_is_heard() -> None:
    one = replica(max_pending=3, repeat_ns=S)
    for number in range(10):
        one.charge(number, EPOCH_NS, 3)
    for second in range(3):
        one.round(EPOCH_NS + second * S + second, Random(1))
    assert one.pending["l1"].behind
    assert not one.pending["l1"].news
    one.receive("l1", Message(1, {}), EPOCH_NS + 3 * S)
    messages = [it for _ in range(4) for it in one.round(EPOCH_NS + 3 * S, Random(1))]
    assert [len(message.deltas) for _, message in messages] == [3, 3, 3, 1]
    assert {key for _, message in messages for key in message.deltas} == {*range(10)}
    numbers = [message.number for _, message in messages]
    assert numbers == sorted(numbers)
    assert numbers[0] > 1, "acknowledgements of earlier messages are not for these"


def test_a_peer_that_knows_nothing_is_told_some_keys_a_round() -> None:
    one = replica(copied_keys=4)
    one.set_pace(None, Slack(S), None)
    for number in range(10):
        one.charge(number, EPOCH_NS, 3)
    one.round(EPOCH_NS + 2 * S, Random(1))
    one.returned("l1")
    told = [
        len(message.deltas)
        for _ in range(4) for _, message in one.round(EPOCH_NS + 2 * S, Random(1))
    ]  # fmt: skip
    assert told == [4, 4, 2]
    assert one.settled


def test_a_single_bucket_has_no_news() -> None:
    bucket = Single(POLICY)
    assert (bucket.idle(EPOCH_NS), bucket.level(EPOCH_NS)) == (True, 0)
    assert bucket.take(EPOCH_NS, 3)[0].admitted
    assert bucket.charge(EPOCH_NS, 3) == bucket.everything() == {}
    assert bucket.decide(EPOCH_NS, 1).retry_after_ns == 3 * S
    bucket.reconfigure(Policy(8, 2), EPOCH_NS)
    assert (bucket.level(EPOCH_NS), bucket.level(EPOCH_NS + S), bucket.entries) == (6, 4, 0)
    assert bucket.merge((), EPOCH_NS) == ({}, {})
    assert bucket.delta({}, EPOCH_NS) is None
