"""The walk of messages: order, several limits, drops, and the memory of those that wait."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

from drld.messages.frame import Frame, Place
from drld.messages.gate import Fate, Lane, memory
from drld.messages.spec import Excess
from drld.messages.topics import Topic
from drld.messages.waiting import WaitingBucket
from drld.model import NS_PER_S

from .made import MS, datapath, forwarded, frame, message_limit, offered, record, released


def test_a_burst_passes_and_the_rest_waits_in_order() -> None:
    made = datapath(message_limit(rate=10, burst=2))
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "abcd", 0) == "ab"
    assert (len(lane), made.gate.due_ns) == (2, 100 * MS)
    assert forwarded(made, 100 * MS - 1) == ""
    assert forwarded(made, 100 * MS) == "c"
    assert made.gate.due_ns == 200 * MS
    assert forwarded(made, 1000 * MS) == "d"
    assert [made.gate.due_ns] == [None]
    assert (len(lane), made.gate.held_bytes, lane.held_bytes) == (0, 0, 0)


def test_the_frames_of_a_connection_keep_their_order() -> None:
    """Only what overtakes passes a message that waits; another topic does not."""
    made = datapath(message_limit("slow", rate=10, burst=1))
    lane = made.gate.lane("mqtt")
    gate = made.gate
    assert offered(made, lane, "slow", "ab", 0) == "a"
    assert offered(made, lane, "free", "c", 0) == ""
    assert gate.offer(lane, frame(None, "d"), 0) is Fate.WAIT
    assert gate.offer(lane, frame(None, "e", Place.OVERTAKES), 0) is Fate.FORWARD
    other = gate.lane("mqtt")
    assert offered(made, other, "free", "f", 0) == "f"
    assert offered(made, lane, "slow", "g", 0) == ""
    assert forwarded(made, 100 * MS) == "bcd"
    assert forwarded(made, 200 * MS) == "g"
    assert gate.unmatched == 2


def test_a_message_is_charged_at_its_arrival_though_others_stand_before_it() -> None:
    """Its tokens are there when its turn comes, so no message waits for them."""
    made = datapath(
        message_limit("slow", id=1, rate=10, burst=1), message_limit("fast", id=2, rate=10, burst=1)
    )
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "slow", "ab", 0) == "a"
    assert offered(made, lane, "fast", "c", 0) == ""
    other = made.gate.lane("mqtt")
    # The token of 100 ms is c's no more: c had that of 0 ms.
    assert offered(made, other, "fast", "d", 100 * MS) == "d"
    assert forwarded(made, 100 * MS) == "bc"


def test_a_message_waits_at_each_of_its_limits_in_turn() -> None:
    made = datapath(
        message_limit("a/#", id=1, rate=10, burst=1), message_limit("#", id=2, rate=4, burst=1)
    )
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a/b", "abc", 0) == "a"
    # b has its first token at 100 ms, and the second one at 250 ms; c at 200 ms and 500 ms.
    assert made.read(2, 0).arrived_items == 1
    assert forwarded(made, 249 * MS) == ""
    assert made.read(2, 249 * MS).arrived_items == 2
    assert made.gate.due_ns == 250 * MS
    assert forwarded(made, 250 * MS) == "b"
    assert forwarded(made, 499 * MS) == ""
    assert forwarded(made, 500 * MS) == "c"


def test_the_second_limit_charges_at_the_time_of_the_first_ones_token_however_late() -> None:
    limits = (
        message_limit("a/#", id=1, rate=10, burst=1), message_limit("#", id=2, rate=10, burst=2)
    )  # fmt: skip
    on_time, late = datapath(*limits), datapath(*limits)
    for made in (on_time, late):
        lane = made.gate.lane("mqtt")
        assert offered(made, lane, "a/b", "abc", 0) == "a"
        if made is on_time:
            assert forwarded(made, 100 * MS) == "b"
        other = made.gate.lane("mqtt")
        # b has its token of the second limit at 100 ms, before d comes.
        assert offered(made, other, "x", "de", 150 * MS) == "d"
    assert forwarded(on_time, 200 * MS) == "e"
    assert forwarded(late, 200 * MS) == "be"
    assert forwarded(on_time, 300 * MS) == forwarded(late, 300 * MS) == "c"


def test_several_brokers_share_a_bucket_and_others_have_none_of_it() -> None:
    both = message_limit("a", broker=("mqtt", "other"), rate=10, burst=1)
    made = datapath(both, message_limit("a", id=2, broker=("nats",), rate=10, burst=1))
    assert offered(made, made.gate.lane("mqtt"), "a", "a", 0) == "a"
    assert offered(made, made.gate.lane("nats"), "a", "b", 0) == "b"
    assert offered(made, made.gate.lane("mqtt"), "a", "c", 0) == ""
    assert offered(made, made.gate.lane("unknown"), "a", "d", 0) == "d"


def test_a_dropped_message_keeps_its_place() -> None:
    """Acknowledgements have the order of the messages."""
    made = datapath(
        message_limit("wait", id=1, rate=10, burst=1),
        message_limit("drop", id=2, rate=10, burst=1, excess=Excess.DROP),
    )
    lane = made.gate.lane("mqtt")
    assert made.gate.offer(lane, frame("drop", "a"), 0) is Fate.FORWARD
    assert made.gate.offer(lane, frame("drop", "b"), 0) is Fate.DROP
    assert offered(made, lane, "wait", "cd", 0) == "c"
    assert made.gate.offer(lane, frame("drop", "e"), 0) is Fate.WAIT
    assert released(made, 100 * MS) == [("d", Fate.FORWARD), ("e", Fate.DROP)]


def test_waiting_messages_leave_after_their_connection_is_closed() -> None:
    made = datapath(message_limit(rate=10, burst=1))
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "abc", 0) == "a"
    made.gate.close(lane)
    assert forwarded(made, 200 * MS) == "bc"
    assert made.gate.held_bytes == 0


def test_release_may_be_left_and_gone_on_with() -> None:
    made = datapath(message_limit(rate=100, burst=1))
    lanes = [made.gate.lane("mqtt"), made.gate.lane("mqtt")]
    offered(made, lanes[0], "a", "abc", 0)
    offered(made, lanes[1], "a", "de", 0)
    for _, first, _ in made.gate.release(100 * MS):
        assert first.data == b"b"
        break
    assert made.gate.due_ns is not None
    assert made.gate.due_ns <= 100 * MS
    assert forwarded(made, 100 * MS) == "cde"


def test_a_daemon_that_has_stood_still_lets_out_a_full_bucket() -> None:
    made = datapath(message_limit(rate=10, burst=2))
    offered(made, made.gate.lane("mqtt"), "a", "abcdefghij", 0)
    assert len(list(made.gate.release(3000 * MS))) == 2
    assert forwarded(made, 3200 * MS) == "ef"


def test_frames_may_be_offered_while_others_are_released() -> None:
    made = datapath(message_limit("a", rate=10, burst=1))
    lane = made.gate.lane("mqtt")
    offered(made, lane, "a", "abc", 0)
    texts = ""
    for _, it, _ in made.gate.release(200 * MS):
        texts += it.data.decode()
        if it.data == b"b":
            assert made.gate.offer(lane, frame("free", "x"), 200 * MS) is Fate.WAIT
    assert texts == "bcx"
    assert made.gate.offer(lane, frame("free", "y"), 200 * MS) is Fate.FORWARD


def test_the_memory_of_what_waits_is_counted() -> None:
    """Small messages take more than their bytes: `hold` bounds all of it."""
    made = datapath(message_limit(rate=0.001, burst=1))
    lane = made.gate.lane("mqtt")
    offered(made, lane, "t", "a", 0)
    number = 5000
    tracemalloc.start()
    for each in range(number):
        topic = Topic(f"topic/{each:08}")
        made.gate.offer(lane, Frame(b"x" * (100 + each % 2), each << 20, topic, Place.KEEPS), each)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(lane) == number
    assert lane.held_bytes == made.gate.held_bytes
    # What is remembered of their topics is in it here, and is bounded by itself.
    assert 0.7 * used < lane.held_bytes < 1.5 * used
    assert lane.held_bytes == sum(memory(it.frame) for it in lane.frames)


def test_letters_beyond_ascii_count_with_the_memory_that_they_take() -> None:
    plain, wide = (Frame(b"", 0, Topic(text * 1000), Place.KEEPS) for text in ("a", "\U0001f600"))
    assert memory(wide) - memory(plain) == 3000


def test_messages_of_a_lost_connection_use_no_tokens() -> None:
    """Its broker has gone, so its messages cannot be delivered; those of others move up."""
    made = datapath(message_limit(rate=10, burst=1))
    lost, other = (made.gate.lane("mqtt") for _ in range(2))
    assert offered(made, lost, "a", "abc", 0) == "a"
    assert offered(made, other, "a", "d", 0) == ""
    made.gate.offer(lost, frame(None, "e"), 0)
    assert made.gate.lose(lost) == 2
    assert made.gate.held_bytes == other.held_bytes
    assert forwarded(made, 50 * MS) == ""
    assert made.waits(1).waiting == 1
    assert forwarded(made, 100 * MS) == "d"
    assert offered(made, made.gate.lane("mqtt"), "a", "f", 200 * MS) == "f"


def test_a_limit_for_which_only_lost_messages_wait_is_like_a_new_one() -> None:
    made = datapath(message_limit(rate=10, burst=2))
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "abcd", 0) == "ab"
    assert made.gate.lose(lane) == 2
    assert forwarded(made, 0) == ""
    assert made.gate.due_ns is None
    assert offered(made, made.gate.lane("mqtt"), "a", "efg", 200 * MS) == "ef"


def test_a_message_that_has_passed_and_stands_behind_another_may_be_lost() -> None:
    made = datapath(message_limit("slow", id=1, rate=10, burst=1), message_limit("fast", id=2))
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "slow", "ab", 0) == "a"
    assert offered(made, lane, "fast", "c", 0) == ""
    assert made.gate.lose(lane) == 2
    assert forwarded(made, 100 * MS) == ""


def test_entries_of_the_schedule_without_effect_are_thrown_away() -> None:
    """A rate that changes at each tick, while the next token comes in an hour."""
    limit = message_limit(rate=1 / 3600, burst=1)
    made = datapath(limit)
    offered(made, made.gate.lane("mqtt"), "a", "ab", 0)
    for tick in range(1, 1000):
        enforced = replace(record(limit), fill_rate=record(limit).fill_rate + tick % 2)
        made.program(1, enforced, (), tick * MS)
    assert len(made.gate._schedule) < 100
    assert forwarded(made, 4000 * 1000 * MS) == "b"


def test_an_error_in_a_limit_ends_the_connections_whose_messages_wait_for_it() -> None:
    """The others go on, and so does the limit once nothing waits for it."""
    made = datapath(
        message_limit("sound", rate=1, burst=1), message_limit("bad", id=2, rate=1, burst=1)
    )
    sound, bad, quick = (made.gate.lane("mqtt") for _ in range(3))
    for lane, topic in ((sound, "sound"), (bad, "bad")):
        assert offered(made, lane, topic, "123", 0) == "1"
    assert offered(made, quick, "free", "4", 0) == "4"
    ended: list[Lane] = []
    made.gate.failed = lambda involved: ended.extend(
        lane for lane in (sound, bad, quick) if involved(lane)
    )
    (broken,) = bad.topics.search("bad")  # type: ignore[union-attr]  # it has limits
    with mock.patch.object(WaitingBucket, "release", _broken(broken, WaitingBucket.release)):
        assert forwarded(made, 2 * NS_PER_S) == "23"
    assert ended == [bad]
    made.gate.lose(bad)
    assert forwarded(made, 10 * NS_PER_S) == ""
    assert made.waits(2).waiting == 0
    assert offered(made, quick, "bad", "5", 10 * NS_PER_S) == "5"


def test_an_error_of_a_further_limit_ends_one_connection() -> None:
    """The messages behind it leave the limit before."""
    made = datapath(
        message_limit("#", rate=1, burst=1), message_limit("bad", id=2, rate=0.001, burst=1)
    )
    sound, bad = (made.gate.lane("mqtt") for _ in range(2))
    assert offered(made, sound, "sound", "1", 0) == "1"
    assert offered(made, bad, "bad", "2", 0) == ""
    assert offered(made, sound, "sound", "3", 0) == ""
    ended: list[Lane] = []
    made.gate.failed = lambda involved: ended.extend(
        lane for lane in (sound, bad) if involved(lane)
    )
    broken = bad.topics.search("bad")[1]  # type: ignore[union-attr]  # it has limits
    with mock.patch.object(WaitingBucket, "enter", _broken(broken, WaitingBucket.enter)):
        assert forwarded(made, 2 * NS_PER_S) == "3"
    assert ended == [bad]


def _broken(queue: object, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a limit's bucket, with a mistake in that of `queue`."""

    def called(self: object, *arguments: object) -> Any:
        if self is queue:
            raise ZeroDivisionError
        return method(self, *arguments)

    return called
