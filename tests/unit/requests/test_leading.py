"""Which limiter leads, and in which turns it tells the floors of its keys."""

from __future__ import annotations

from drld.requests.buckets.bucket import Bucket
from drld.requests.buckets.leading import MOST_CELLS, ROUNDS, Leading
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.policy import Policy

PEERS = ("l1", "l2")
ROWS: dict[int, Bucket] = {key: Ledger(Policy(9, 1), 1, 50_000_000, 0) for key in range(1000)}


def test_the_first_name_in_contact_leads() -> None:
    assert Leading("l0", PEERS).leader == "l0"
    assert Leading("l3", PEERS).leader == "l1"
    assert Leading("l3", ()).leader == "l3"
    assert Leading(None, PEERS).leader is None


def test_the_leader_waits_and_then_tells_all_its_keys_in_turns() -> None:
    one = Leading("l0", PEERS)
    assert [one.next_floors(ROWS) for _ in range(ROUNDS)] == [[]] * ROUNDS
    turns = [one.next_floors(ROWS) for _ in range(ROUNDS)]
    assert {len(turn) for turn in turns} == {len(ROWS) // ROUNDS}
    assert sorted(key for turn in turns for key, _ in turn) == [*ROWS]


def test_a_limiter_that_leads_again_waits_again_and_tells_no_key_that_has_left() -> None:
    one = Leading("l1", ())
    for _ in range(ROUNDS + 1):
        one.next_floors(ROWS)
    one.meet(("l0",))
    assert one.next_floors(ROWS) == []
    one.meet(())
    assert [one.next_floors(ROWS) for _ in range(ROUNDS)] == [[]] * ROUNDS
    assert all(one.next_floors({}) == [] for _ in range(ROUNDS))
    nameless = Leading(None, ())
    assert all(nameless.next_floors(ROWS) == [] for _ in range(2 * ROUNDS))


def test_the_floors_of_a_round_are_bounded_and_all_keys_have_their_turn() -> None:
    """A floor goes to each peer, with a cell of each limiter."""
    peers = [f"l{number}" for number in range(99)]
    one = Leading("a", peers)
    for _ in range(ROUNDS):
        assert one.next_floors(ROWS) == []
    told: list[int] = []
    while len(told) < 2 * len(ROWS):
        turn = one.next_floors(ROWS)
        assert 0 < len(turn) * len(peers) * (len(peers) + 1) <= MOST_CELLS + len(peers) ** 2
        told += [key for key, _ in turn]
    assert told == [*ROWS] * 2
