"""A peer that returns is told everything piece by piece, and what got lost again."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

from drld.gossip.wire.message import MAX_CONTENT
from drld.requests.buckets.delta_codec import MAX_TOKENS, DeltaCodec, Form, parts
from drld.requests.buckets.ledger import Cell, Ledger
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.replica import UNACKNOWLEDGED, Message, Replica
from drld.requests.buckets.urgency import Slack

MS = 1_000_000
S = 1000 * MS
NOW_NS = 10**6 * S
MOST = 10
KEYS = 95


def replica(origin: int) -> Replica:
    def make(_: Hashable) -> Ledger:
        return Ledger(Policy(100, 1, 3600 * S), origin, 50 * MS, S)

    return Replica(make, (), slack=Slack(100 * MS), repeat_ns=200 * MS, most=MOST)


def test_a_copy_is_paced_and_waits_for_acknowledgements() -> None:
    sender, receiver = replica(1), replica(2)
    for key in range(KEYS):
        sender.charge(key, NOW_NS, 5)
    rng, now_ns, largest = Random(1), NOW_NS + S, 0
    assert sender.round(now_ns, rng) == []  # It is alone, and has told all.
    sender.set_peers({"b"})
    receiver.set_peers({"a"})
    # Nothing is acknowledged: the copy stops by itself, and what was sent is all that is pending.
    silent = 0
    for _ in range(UNACKNOWLEDGED + 2):
        silent += sum(len(it.deltas) for _, it in sender.round(now_ns, rng))
    assert silent == UNACKNOWLEDGED * MOST < KEYS
    for turn in range(100):
        now_ns += 50 * MS
        for _, message in sender.round(now_ns, rng):
            largest = max(largest, len(message.deltas))
            if turn % 3:  # A third is lost.
                receiver.receive("a", message, now_ns)
        for _, message in receiver.round(now_ns, rng):
            sender.receive("b", message, now_ns)
    assert largest == MOST
    assert sender.settled
    assert [round(receiver.level(key, now_ns)) for key in range(KEYS)] == [5] * KEYS


def test_acknowledgements_that_do_not_fit_a_datagram_follow_in_the_next() -> None:
    numbers = tuple(range(1, 201))
    found = [*parts(Message(0, {}, numbers), Form.LEDGER, 1, 1)]
    assert tuple(number for part in found for number in part.received) == numbers
    cells: dict[Hashable, object] = {key: (Cell(1, 1, 1, 1),) for key in range(500)}
    found = [*parts(Message(1, cells, numbers), Form.LEDGER, 1, 1)]
    assert tuple(number for part in found for number in part.received) == numbers
    assert sum(len(part.deltas) for part in found) == len(cells)
    codec = DeltaCodec(7)
    assert all(len(codec.encode(part, 0, 0)) <= MAX_CONTENT for part in found)


def test_a_debt_beyond_the_field_is_told_as_the_largest() -> None:
    (part,) = parts(Message(1, {1: (Cell(1, 1, 2**40, 1),)}), Form.LEDGER, 1, 1)
    assert part.deltas[0][1][0].tokens == MAX_TOKENS
    DeltaCodec(7).encode(part, 0, 0)
