"""The leader's floor makes replicas of the ledger agree, whatever has moved their levels apart."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import FLOOR, Cell
from drld.requests.buckets.policy import Policy

MS = 1_000_000
S = 1000 * MS
INTERVAL_NS = 50 * MS
MARGIN_NS = S
ORIGINS = (1, 2, 3)
POLICIES = (Policy(20, 100), Policy(200, 40), Policy(30, 300), Policy(7, 13, 2 * S))
LONGEST_MS = 100
"""The longest way of a message; a floor has no younger cells."""


class Fleet:
    """Replicas of a key that always uses more than its rate, whose news arrive late, but all do."""

    def __init__(self, policy: Policy, rng: Random) -> None:
        self.rng = rng
        self.now_ns = 10**6 * S
        self.rows = {it: Ledger(policy, it, INTERVAL_NS, MARGIN_NS) for it in ORIGINS}
        self._under_way: list[tuple[int, int, tuple[Cell, ...]]] = []
        self._mean_ns = 0.8 * policy.per_ns / policy.rate
        for row in self.rows.values():
            # A debt that all know, so that no start matters.
            row.merge((Cell(9, 1, 2 * policy.capacity, 0),), self.now_ns)

    def run(self, time_ns: int) -> None:
        end_ns = self.now_ns + time_ns
        while (next_ns := self.now_ns + int(self.rng.expovariate(1 / self._mean_ns))) < end_ns:
            self.now_ns = next_ns
            origin = self.rng.choice(ORIGINS)
            row = self.rows[origin]
            delta = row.delta(row.charge(self.now_ns, 1), self.now_ns)
            for other in {*ORIGINS} - {origin}:
                due_ns = self.now_ns + self.rng.randrange(LONGEST_MS * MS)
                self._under_way.append((due_ns, other, delta))
            self.deliver()
        self.now_ns = end_ns
        self.deliver()

    def deliver(self) -> None:
        for due in sorted(it for it in self._under_way if it[0] <= self.now_ns):
            self._under_way.remove(due)
            self.rows[due[1]].merge(due[2], due[0])

    def settle(self) -> None:
        """Let no admission follow until all news have arrived."""
        self.now_ns += LONGEST_MS * MS
        self.deliver()


@given(st.sampled_from(POLICIES), st.integers(0, 60), st.integers(0, 2**32))
def test_a_replica_that_follows_has_the_leader_s_level(
    policy: Policy, tokens: int, seed: int
) -> None:
    """Later by the way of the floor, and a rounded millisecond. No token is left out or counted
    twice, though the two date cells differently, and each has cells that the other lacks."""
    fleet = Fleet(policy, Random(seed))
    fleet.run(policy.fill_ns + 4 * MARGIN_NS)
    leader, follower, _ = fleet.rows.values()
    # A floor that has nothing to do with the key's tokens.
    follower.follow((Cell(FLOOR, 0, tokens, 2000),), fleet.now_ns)
    way_ms = fleet.rng.randrange(LONGEST_MS)
    delta = leader.delta({FLOOR: 1}, fleet.now_ns)
    fleet.run(way_ms * MS)
    follower.merge(follower.follow(delta, fleet.now_ns), fleet.now_ns)
    fleet.settle()
    apart = follower.level(fleet.now_ns) - leader.level(fleet.now_ns)
    assert -1e-6 <= apart <= (way_ms + 1) / 1000 * policy.rate * S / policy.per_ns + 1e-6
