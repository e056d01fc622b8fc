"""The gate decides about messages that find a full bucket, in the bucket's place."""

from __future__ import annotations

import pytest

from drld.messages.gate import Fate
from drld.messages.hold import COST
from drld.messages.waiting import WaitingBucket
from drld.model import Enforcement
from tests.unit.messages.made import MS, attach, datapath, frame, message_limit, offered


def test_a_bucket_is_full_when_the_tokens_of_a_message_have_come_and_not_a_nanosecond_before() -> (
    None
):
    made = datapath(message_limit("a", rate=25, burst=1))
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "1", 0) == "1"
    assert offered(made, lane, "a", "2", 40 * MS) == "2"
    assert offered(made, lane, "a", "3", 80 * MS - 1) == ""


def test_a_message_leaves_behind_those_of_its_connection_though_it_finds_a_full_bucket() -> None:
    made = datapath(message_limit("slow", id=1, rate=1, burst=1), message_limit("fast", id=2))
    lane, other = made.gate.lane("mqtt"), made.gate.lane("mqtt")
    assert offered(made, lane, "slow", "ab", 0) == "a"
    assert made.gate.offer(lane, frame("fast"), 0) is Fate.WAIT
    assert made.gate.offer(other, frame("fast"), 0) is Fate.FORWARD


@pytest.mark.parametrize(
    "record",
    [
        Enforcement(),  # no bucket
        Enforcement(fill_rate=0, depth=COST),  # never full again
        Enforcement(fill_rate=-1, depth=COST),
        Enforcement(fill_rate=1, depth=0),
    ],
)
def test_a_bucket_that_does_not_fill_decides_itself(record: Enforcement) -> None:
    made = datapath(message_limit("a"))
    made.program(1, record, (), 0)
    lane = made.gate.lane("mqtt")
    for at_ns in (0, 10**9, 10**15):
        made.program(1, record, (), at_ns)
        made.gate.offer(lane, frame("a"), at_ns)
    assert not any(made.gate.full.passed)


def test_a_topic_under_several_limits_passes_all_of_them() -> None:
    made = datapath(message_limit("a", id=1, burst=2), message_limit("#", id=2, burst=1))
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "12", 0) == "1"
    assert [made.read(it, 0).arrived_items for it in (1, 2)] == [2, 2]


def test_after_a_reload_limits_have_their_messages_of_before() -> None:
    limit = message_limit("a", id=2)
    made = datapath(message_limit("b", id=1), limit)
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "12", 0) == "12"
    attach(made, limit, message_limit("c", id=3), now_ns=MS)
    assert offered(made, lane, "a", "3", 10 * MS) == "3"
    assert made.read(2, 10 * MS).arrived_items == 3
    assert made.had_traffic([2, 3]) == []


def test_most_messages_do_not_come_to_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    made = datapath(message_limit("a", rate=1000))
    monkeypatch.delattr(WaitingBucket, "enter")
    lane = made.gate.lane("mqtt")
    for number in range(10):
        assert made.gate.offer(lane, frame("a"), number * MS) is Fate.FORWARD
    assert list(made.had_traffic([1])) == [1]
    assert made.read(1, 10 * MS).arrived_items == 10
