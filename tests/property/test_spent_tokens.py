"""Requests that `Ledger.spend` admits: decisions, levels and messages are those of the long way."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.policy import Decision, Policy
from drld.requests.buckets.replica import Message, Outgoing, Replica
from drld.requests.buckets.urgency import Slack

MS = 1_000_000
S = 1000 * MS
INTERVAL_NS = 300 * MS
LIMITERS = ("l0", "l1", "l2")
KEYS = (1, 2, 3)
OPERATIONS = 120
POLICIES = (
    Policy(5, 1), Policy(300, 3, 10 * S), Policy(2000, 50), Policy(1_000_000, 1_000_000, 86400 * S),
    # 64 bits do not hold its ticks.
    Policy(1000, 999_999_937, 3600 * S),
)  # fmt: skip


class Fleet:
    """Limiters whose messages arrive when the test says so."""

    def __init__(self, policy: Policy, *, deferred: bool, spends: bool) -> None:
        self._policy = policy
        self._spends = spends
        self.replicas = {
            name: Replica(
                lambda _, origin=origin: self._ledger(origin),  # type: ignore[misc]  # a default is untyped
                [peer for peer in LIMITERS if peer != name],
                slack=Slack(len(LIMITERS) * INTERVAL_NS),
                deferred=deferred,
                repeat_ns=4 * INTERVAL_NS,
            )
            for origin, name in enumerate(LIMITERS, 1)
        }  # fmt: skip

    def _ledger(self, origin: int) -> Ledger:
        return Ledger(self._policy, origin, INTERVAL_NS, 9 * S)

    def replica(self, name: str) -> Replica:
        found = self.replicas[name]
        if not self._spends:
            found.buckets.halt()
        return found

    def take(self, name: str, key: int, now_ns: int, cost: int) -> tuple[Decision, Outgoing]:
        """Do as `Replica.take`, the long way if nothing is to be spent."""
        one = self.replica(name)
        if self._spends:
            return one.take(key, now_ns, cost)
        decision, row = one.decide(key, now_ns, cost), one.buckets.row(key, now_ns)
        return decision, one.charge_row(key, row, now_ns, cost) if decision.admitted else []

    def reload(self, policy: Policy, now_ns: int) -> None:
        self._policy = policy
        for each in self.replicas.values():
            each.reconfigure(lambda _: policy, now_ns)


def answers(fleet: Fleet, name: str, now_ns: int, rng: Random, sent: list[Message]) -> list[object]:
    """Return all that a limiter answers to an operation which `rng` chooses, with its messages."""
    one, key = fleet.replica(name), rng.choice(KEYS)
    what, cost = rng.random(), rng.randint(1, rng.choice((1, 5, 50)))
    messages: Outgoing = []
    decision = None
    if what < 0.65:
        looked = one.buckets.look(key)
        cost = min(cost, looked.policy.capacity)
        decision = looked.decide(now_ns, cost)
        if what < 0.3:
            taken, messages = fleet.take(name, key, now_ns, cost)
            assert taken == decision
        elif decision.admitted:
            row = one.buckets.row(key, now_ns, looked)
            messages = one.charge_row(key, row, now_ns, cost)
    elif what < 0.7:
        messages = one.charge(key, now_ns, 10 * cost)
    elif what < 0.78:
        messages = one.urgent(now_ns)
    elif what < 0.85:
        messages = one.round(now_ns, rng)
    elif what < 0.95 and sent:
        messages = one.receive(rng.choice([peer for peer in LIMITERS if peer != name]),
                               rng.choice(sent[-6:]), now_ns)  # fmt: skip
    elif what < 0.97:
        one.sweep(now_ns, 9)
    elif what < 0.98:
        capacity = one.buckets.look(key).policy.capacity
        fleet.reload(replace(one.buckets.look(key).policy, capacity=2 * capacity), now_ns)
    else:
        one.set_peers([peer for peer in LIMITERS if peer != name and rng.random() < 0.7])
    sent += [message for _, message in messages if message.deltas]
    levels = [one.level(each, now_ns) for each in KEYS]
    return [decision, messages, levels, one.pressing, one.settled]


def compare(policy: Policy, seed: int, *, deferred: bool) -> None:
    rng = Random(seed)
    fleets = [Fleet(policy, deferred=deferred, spends=spends) for spends in (True, False)]
    sent: list[list[Message]] = [[], []]
    now_ns = 10**6 * S
    for _ in range(OPERATIONS):
        now_ns += rng.choice((0, 1, MS, MS, 40 * MS, INTERVAL_NS, rng.randrange(policy.fill_ns)))
        # A clock that goes back makes buckets fuller.
        now_ns -= rng.choice((0, 0, 0, 0, 5 * MS))
        name, seed = rng.choice(LIMITERS), rng.getrandbits(32)
        spent, long = (
            answers(fleet, name, now_ns, Random(seed), its)
            for fleet, its in zip(fleets, sent, strict=True)
        )
        assert spent == long


@given(st.sampled_from(POLICIES), st.booleans(), st.integers(0, 2**32))
def test_what_is_spent_changes_no_decision_level_or_message(
    policy: Policy, deferred: bool, seed: int
) -> None:
    compare(policy, seed, deferred=deferred)


@given(st.sampled_from(POLICIES), st.integers(1, 30), st.integers(1, 5), st.integers(0, 2000))
def test_spending_ends_before_slack_has_peers_told(
    policy: Policy, limiters: int, first: int, passed_ms: int
) -> None:
    spending, long = (Ledger(policy, 1, INTERVAL_NS, 9 * S) for _ in range(2))
    now_ns = 10**6 * S
    for row in (spending, long):
        row.charge(now_ns, first)
        assert row.untold == first
    if spending.due(now_ns, limiters):
        assert not spending.spend(now_ns, 1)
        return
    spent = 0
    at_ns = now_ns + min(passed_ms * MS, INTERVAL_NS - 1)
    while spent < 1000 and spending.spend(at_ns, 1):
        spent += 1
        assert long.take(at_ns, 1)[0].admitted
        assert not long.due(at_ns, limiters)
    free = policy.capacity - first
    assert spent == min((free * policy.per_ns - first * limiters * policy.per_ns - 1)
                        // (policy.per_ns * (limiters + 1)), 1000)  # fmt: skip
    assert spending.level(at_ns) == long.level(at_ns)
    assert spending.untold == long.untold == first + spent
    assert not spending.spend(now_ns + 10 * S, 1), "another slot has another cell"


def test_news_of_a_peer_end_spending() -> None:
    row = Ledger(Policy(1000, 1), 1, INTERVAL_NS, 9 * S)
    row.charge(10**6 * S, 1)
    assert not row.due(10**6 * S, 3)
    assert row.spend(10**6 * S, 1)
    row.merge((Cell(2, 1, 900, 0),), 10**6 * S)
    assert not row.spend(10**6 * S, 1)
    assert row.untold == 2
