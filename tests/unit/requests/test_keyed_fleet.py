"""Limits with a bucket for each key, in a fleet: news, losses, restarts, reloads, memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drld.model import NS_PER_S
from drld.requests.buckets import leading
from drld.requests.buckets.delta_codec import KIND, Form, Part
from drld.requests.keyed_limit import KeyedLimit
from drld.requests.keyed_limits import CONTACT_NS, PING_NS
from drld.requests.model import Request
from testbed.sim.network import Conditions

from .keyed_fleet import KEYED, MS, Fleet, Limiter
from .made import remaining


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


def test_a_restarted_limiter_learns_its_own_admissions_from_peers() -> None:
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
def test_a_restarted_limiter_learns_of_keys_that_always_use_their_rate(burst: int) -> None:
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
    # Copies of two peers, of different rounds: no token is left out or counted twice.
    assert abs(one.level("alice") - two.level("alice")) < 1


@pytest.mark.parametrize(
    "event", ["restart", "first restarts", "cut", "short freeze", "long freeze", "rates"]
)
def test_a_key_that_always_uses_its_rate_is_admitted_at_all_limiters(event: str) -> None:
    """Nothing evens levels out that differ, while the key uses its rate: a limiter that is behind
    the others by a few tokens would refuse for ever. The leader's floors do."""
    text = KEYED.replace("1/min", "100/s")
    fleet = Fleet(3, text=text, jitter_ns=MS)
    first, _, last = fleet.limiters
    admitted = dict.fromkeys(fleet.names, 0)

    def ask(limiter: Limiter) -> None:
        if limiter.name not in fleet.down:
            admitted[limiter.name] += limiter.ask("alice").admitted
        wait_ns = 1 + int(fleet.rng.expovariate(1 / (10 * MS)))
        fleet.clock.at(fleet.clock.now_ns + wait_ns, lambda _: ask(limiter))

    for limiter in fleet.limiters:
        ask(limiter)
    fleet.run(4000)
    away_ns = 2 * CONTACT_NS
    if "restart" in event:
        one = last if event == "restart" else first
        one.socket.restart()
        one.begin(text)
    elif event == "cut":
        fleet.network.partition({"l0"}, {"l1", "l2"})
        fleet.run(away_ns // MS)
        fleet.network.heal()
    elif "freeze" in event:
        # Its peers are in contact with it after the short one. It finds old datagrams.
        fleet.down.add("l0")
        fleet.run((CONTACT_NS - 2 * PING_NS if event == "short freeze" else away_ns) // MS)
        fleet.down.clear()
    else:
        for limiter in fleet.limiters:
            limiter.follow(text.replace("100/s", "200/s"))
            fleet.run(1000)
        for limiter in reversed(fleet.limiters):
            limiter.follow(text)
            fleet.run(1000)
    fleet.run(2 * leading.ROUNDS * 50 + 5000)
    admitted.update(dict.fromkeys(admitted, 0))
    fleet.run(20_000)
    assert 0.99 < sum(admitted.values()) / 2000 < 1.01
    assert min(admitted.values()) > 2000 / 3 / 2


def test_news_for_a_silent_peer_are_not_kept_and_told_when_it_is_heard_again() -> None:
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


def test_a_peer_without_the_limit_is_told_in_vain_for_some_time_only() -> None:
    fleet = Fleet(3)
    without = fleet.limiters[2]
    without.follow(KEYED.replace("id = 1", "id = 2"))
    for number in range(100):
        fleet.limiters[0].ask(f"u{number}", 15)
    fleet.run(11_000)
    refused = without.socket.rejected["limit"]
    assert refused > 100
    fleet.run(10_000)
    assert without.socket.rejected["limit"] == refused
    # Once it has the limit, it is told everything.
    without.follow(KEYED)
    fleet.run(1500)
    assert all(round(without.level(f"u{number}")) == 15 for number in range(100))
    assert all(it.keyed.limits[1].replica.settled for it in fleet.limiters)


def test_a_queue_decides_while_a_peer_has_no_such_limit() -> None:
    text = KEYED.replace("1/min", "10/s").replace("burst = 20", 'burst = 20\nbucket = "queue"')
    fleet = Fleet(3, text=text)
    one, two, without = fleet.limiters
    without.follow(KEYED.replace("id = 1", "id = 2"))
    for _ in range(110):
        assert one.ask("alice").admitted
        fleet.run(200)
    assert one.keyed.limits[1].replica.pending["l2"].behind
    assert one.ask("alice", 15).admitted
    fleet.run(200)
    assert two.level("alice") == one.level("alice") == 13


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


def test_the_time_that_news_wait_follows_the_size_of_the_fleet() -> None:
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


@pytest.mark.parametrize(("rate", "more"), [("150/h", set()), ("2/min", {"l9"})])
def test_a_reload_within_a_slot_loses_no_token(rate: str, more: set[str]) -> None:
    """Two cells of one slot would have one id, and peers keep the larger of the two."""
    text = KEYED.replace("1/min", "2/min").replace("burst = 20", "burst = 19")
    fleet = Fleet(3, text=text)
    one = fleet.limiters[0]
    fleet.clock.run(fleet.clock.now_ns // (50 * MS) * 50 * MS + 50 * MS)
    one.ask("alice", 5)
    fleet.run(10)
    for limiter in fleet.limiters:
        limiter.follow(text.replace("2/min", rate), fleet.names | more)
    one.ask("alice", 4)
    fleet.run(200)
    assert [round(it.level("alice")) for it in fleet.limiters] == [9, 9, 9]


@pytest.mark.parametrize("bucket", ["ledger", "queue", "counter"])
@pytest.mark.parametrize(("before", "after"), [("100/s", "7/s"), ("7/s", "100/s")])
def test_news_that_wait_while_a_rate_changes_count_as_many_tokens(
    bucket: str, before: str, after: str
) -> None:
    """These rates have ticks of other lengths."""
    text = KEYED.replace("burst = 20", f'burst = 200\nbucket = "{bucket}"')
    fleet = Fleet(2, text=text.replace("1/min", before))
    # A burst that a queue does not tell at once.
    fleet.limiters[0].ask("alice", 90)
    for limiter in fleet.limiters:
        limiter.follow(text.replace("1/min", after))
    fleet.run(500)
    levels = [it.level("alice") for it in fleet.limiters]
    assert levels == pytest.approx([90 - int(after[:-2]) / 2] * 2, abs=1)


@pytest.mark.parametrize("bucket", ["ledger", "queue", "counter"])
@pytest.mark.parametrize(("before", "after"), [(100, 7), (10, 7), (7, 100)])
def test_a_limiter_that_a_reload_has_not_reached_keeps_its_rate(
    bucket: str, before: int, after: int
) -> None:
    text = KEYED.replace("burst = 20", f'burst = 200\nbucket = "{bucket}"')
    fleet = Fleet(2, text=text.replace("1/min", f"{before}/s"))
    fleet.run(1500)
    old, new = fleet.limiters
    assert old.ask("alice", 200).admitted
    new.follow(text.replace("1/min", f"{after}/s"))
    admitted = 0
    for number in range(1000):
        admitted += old.ask("alice").admitted
        if number % 10 == 0:
            admitted += new.ask("alice").admitted
        fleet.run(2)
    assert admitted <= 2 * (before + after) + 2
    old.follow(text.replace("1/min", f"{after}/s"))
    fleet.run(500)
    # No token of either rate is in use twice.
    assert max(it.level("alice") for it in fleet.limiters) <= 200 + admitted


def test_a_limit_that_begins_again_drops_the_news_that_wait() -> None:
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


def test_a_limiter_alone_sends_nothing() -> None:
    fleet = Fleet(1)
    assert fleet.ask_in_turn("alice", 30) == 20
    fleet.run(2000)
    assert fleet.network.sent == 0


@pytest.mark.parametrize("bucket", ["ledger", "queue"])
def test_drained_buckets_leave(bucket: str) -> None:
    text = KEYED.replace("burst = 20", f'burst = 20\nbucket = "{bucket}"')
    fleet = Fleet(2, text=text.replace("1/min", "100/s"))
    fleet.ask_in_turn("alice", 40)
    fleet.run(15_000)
    assert not any(it.keyed.limits[1].replica.buckets for it in fleet.limiters)


def test_a_ping_says_nothing() -> None:
    fleet = Fleet(2)
    part = Part(0, Form.LEDGER, (), ())
    assert fleet.limiters[0].socket.send("l1", KIND, part) is not None
    fleet.run(50)
    assert not fleet.limiters[1].socket.rejected


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


@pytest.mark.parametrize("size", [1, 2])
def test_a_part_of_a_request_is_charged_to_a_row_at_rest(size: int) -> None:
    """The search for the part reads the row, and the charge wakes it."""
    fleet = Fleet(size)
    one = fleet.limiters[0]
    assert one.ask("alice", 5).admitted
    fleet.run(2000)
    assert not one.keyed.limits[1].replica.buckets.awake
    answer = one.ask("alice", 20, at_least=1)
    (left,) = remaining(answer)
    assert left is not None
    assert (answer.granted, int(left)) == (15, 0)
    assert not one.ask("alice").admitted


@pytest.mark.parametrize("costs", [(0, 3), (3, 0)])
def test_requests_of_one_key_that_pass_together_are_told_one_remainder(
    costs: tuple[int, ...],
) -> None:
    """A question reads the row at rest, and the charge of the other request wakes it."""
    fleet = Fleet(1)
    one = fleet.limiters[0]
    assert one.ask("alice", 5).admitted
    fleet.run(2000)
    requests = [Request("api", {"user": "alice"}, cost) for cost in costs]
    answers = one.datapath.decide_all(requests, fleet.clock.now_ns)
    assert [[int(left or 0) for left in remaining(it)] for it in answers] == [[12], [12]]
