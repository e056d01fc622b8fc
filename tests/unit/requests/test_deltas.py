"""Messages of a replica on their way: as many datagrams as they take, and acknowledgements."""

from __future__ import annotations

from random import Random

import pytest

from drld.gossip.wire.message import MAX_CONTENT
from drld.requests.buckets.delta_codec import KIND, DeltaCodec, Form, of_sender, parts
from drld.requests.buckets.ledger import Ledger
from drld.requests.buckets.ledger_cell import Cell
from drld.requests.buckets.policy import Policy
from drld.requests.buckets.replica import Message, Replica
from drld.requests.buckets.urgency import Slack

MS = 1_000_000
S = 1000 * MS
NOW_NS = 10**6 * S
MOST = 10
KEYS = 95


def replica(origin: int, *peers: str) -> Replica:
    def make(_: int) -> Ledger:
        return Ledger(Policy(100, 1, 3600 * S), origin, 50 * MS, S)

    slack = Slack(100 * MS)
    return Replica(make, peers, slack=slack, repeat_ns=200 * MS, copied_keys=40, most=MOST)


@pytest.mark.parametrize("loss", [0.0, 0.4])
def test_messages_are_small_so_that_a_copy_gets_through_losses(loss: float) -> None:
    sender, receiver, rng = replica(1, "b"), replica(2, "a"), Random(1)
    for key in range(KEYS):
        sender.charge(key, NOW_NS, 5)
    now_ns, largest, turns = NOW_NS + S, 0, 0
    while not sender.settled:
        turns += 1
        now_ns += 50 * MS
        for _, message in sender.round(now_ns, rng):
            largest = max(largest, len(message.deltas))
            if rng.random() >= loss:
                receiver.receive("a", message, now_ns)
        for _, message in receiver.round(now_ns, rng):
            if rng.random() >= loss:
                sender.receive("b", message, now_ns)
        assert turns < 200
    assert largest == MOST
    assert all(4.9 < receiver.level(key, now_ns) <= 5 for key in range(KEYS))


def test_acknowledgements_that_do_not_fit_a_datagram_follow_in_the_next() -> None:
    numbers = tuple(range(1, 201))
    found = [*parts(Message(0, {}, numbers), Form.LEDGER, 1, 1)]
    assert tuple(number for part in found for number in part.received) == numbers
    cells: dict[int, object] = {key: (Cell(1, 1, 1, 1),) for key in range(500)}
    found = [*parts(Message(1, cells, numbers), Form.LEDGER, 1, 1)]
    assert tuple(number for part in found for number in part.received) == numbers
    assert sum(len(part.deltas) for part in found) == len(cells)
    codec = DeltaCodec(KIND)
    assert all(len(codec.encode(part, 0, 0)) <= MAX_CONTENT for part in found)


def test_a_datagram_names_a_key_once_however_narrow_its_cells_are() -> None:
    """The sender's own cells take less room than others': what is left of it is no place for more
    of the same key."""
    own, others = ([Cell(origin, slot, 1, 5) for slot in range(100)] for origin in (1, 2))
    found = [*parts(Message(1, {7: (*own, *others), 8: tuple(own)}), Form.LEDGER, 1, 1)]
    for part in found:
        keys = [key for key, _ in part.deltas]
        assert len(keys) == len({*keys})
    for key, cells in ((7, {*own, *others}), (8, {*own})):
        came = [cell for part in found for cell in dict(of_sender(part, 1)).get(key, ())]
        assert len(came) == len(cells)
        assert {*came} == cells
