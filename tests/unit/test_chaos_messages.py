"""Faults done to limiters in front of brokers: how the log and the parts are judged."""

from __future__ import annotations

from collections import Counter

import pytest

from testbed.chaos.message_faults import FAULTS
from testbed.chaos.message_log import Arrival, Log, quantile
from testbed.chaos.shares import NONE, Part, Shares
from testbed.chaos.suite import SECTION, Suite, record
from testbed.harness.finding import Check
from testbed.harness.page import Page
from testbed.messages.real.frames import (
    SIZE,
    Delivery,
    Frames,
    Message,
    confirmed,
    delivery,
    receipt,
)

MS = 1_000_000
_PAGE = Page("page", "Title", "command", "explained.md", [SECTION])
RATE, BURST = 100, 5


def came(*numbers: int, publisher: int = 0, every_ms: int = 10, begin_ms: int = 0) -> list[Arrival]:
    return [
        Arrival(publisher, number, 0, (begin_ms + place * every_ms) * MS)
        for place, number in enumerate(numbers)
    ]


def sent(count: int, publisher: int = 0) -> Counter[tuple[int, int]]:
    return Counter({(publisher, number): 1 for number in range(count)})


def test_messages_beyond_the_bucket_are_counted() -> None:
    assert Log(came=came(*range(50))).beyond(RATE, BURST) == 0
    # A burst and one more, and then one for each token.
    assert Log(came=came(*range(6), every_ms=0)).beyond(RATE, BURST) == 0
    assert Log(came=came(*range(9), every_ms=0)).beyond(RATE, BURST) == pytest.approx(3)
    late = [*came(*range(9), every_ms=0), *came(*range(9, 20), begin_ms=1000)]
    assert Log(came=late).beyond(RATE, BURST, since_ns=500 * MS) == 0
    # Two brokers share one bucket.
    both = [*came(*range(50)), *came(*range(50), publisher=1)]
    assert Log(came=both).beyond(RATE, BURST) == pytest.approx(50 + 50 - 50 - BURST, abs=1)


def test_messages_are_lost_doubled_or_overtaken() -> None:
    log = Log(sent(3), {(0, 0), (0, 1), (0, 2)}, came(0, 1, 2))
    assert (log.lost, log.doubled, log.overtaken) == (0, 0, 0)
    # What is not confirmed may be lost.
    assert Log(sent(3), {(0, 0)}, came(0)).lost == 0
    assert Log(sent(3), {(0, 0), (0, 2)}, came(0)).lost == 1
    assert Log(sent(3), set(), came(0, 1, 1, 2)).doubled == 1
    # What was sent again may come again, behind others as well.
    again = Log(sent(3) + Counter({(0, 1): 1}), set(), came(0, 1, 2, 1))
    assert (again.doubled, again.overtaken) == (0, 0)
    assert Log(sent(3), set(), came(0, 2, 1)).overtaken == 1
    assert Log(sent(3), set(), came(2, 1)).of([1]).overtaken == 0


def test_delays_are_those_of_messages_that_were_sent_once() -> None:
    arrivals = [Arrival(0, 0, 0, 5 * MS), Arrival(0, 1, 10 * MS, 11 * MS), Arrival(0, 2, 0, MS)]
    log = Log(Counter({(0, 0): 1, (0, 1): 1, (0, 2): 2}), set(), arrivals)
    assert log.delays_s() == [0.001, 0.005]
    assert log.delays_s(begin_ns=MS) == [0.001]
    assert log.delays_s(end_ns=MS) == [0.005]
    assert quantile([0.001, 0.005], 0.99) == 0.005


def parts(*changes: tuple[float, int, float]) -> Shares:
    shares = Shares()
    for at_s, own, rate in changes:
        shares.note(at_s, own, Part(rate, 10 * rate) if rate else NONE)
    return shares


def test_the_largest_sum_is_that_of_parts_that_are_in_force_together() -> None:
    shares = parts((0, 0, 60), (0, 1, 40), (2, 0, 30), (3, 1, 70))
    assert shares.largest() == (100, 1000)
    assert parts((0, 0, 60), (0, 1, 40), (3, 1, 70), (3.001, 0, 30)).largest() == (130, 1300)
    # A dead limiter has nothing, in whatever order the changes were noted.
    assert parts((0, 0, 60), (2, 1, 70), (0, 1, 40), (1, 0, 0)).largest() == (100, 1000)


def test_parts_have_followed_when_they_stay() -> None:
    shares = parts((0, 0, 50), (0, 1, 50), (5, 0, 20), (6, 1, 80), (9, 0, 21))
    assert shares.followed_s([0.2, 0.8], 4, 0.05) == 2
    assert shares.followed_s([0.5, 0.5], 4, 0.05) is None
    assert parts((0, 0, 20), (0, 1, 80), (5, 0, 50)).followed_s([0.2, 0.8], 0, 0.05) is None


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_frames_of_a_client_that_waits_for_receipts(size: int) -> None:
    message = Message(3, 70_000, 10**18)
    mqtt = confirmed("mqtt", "a/b", message, 4465, again=True)
    data = receipt(4465) + mqtt + b"\xd0\x00"
    frames = Frames("mqtt")
    found = [one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])]
    assert [delivery("mqtt", one) for one in found] == [
        Delivery(None, 4465, False), Delivery(message, 4465, True), None,
    ]  # fmt: skip
    nats = confirmed("nats", "a.b", message, 1, again=False)
    assert nats.endswith(b"\r\nPING\r\n")
    data = nats.replace(b"PUB a.b", b"MSG a.b 1").replace(b"PING", b"PONG") + b"+OK\r\n"
    frames = Frames("nats")
    found = [one for at in range(0, len(data), size) for one in frames.feed(data[at : at + size])]
    assert [delivery("nats", one) for one in found] == [
        Delivery(message, 0, False), Delivery(None, 0, False), None,
    ]  # fmt: skip
    assert len(message.payload()) == SIZE


def test_a_row_shows_shared_promises_and_those_of_the_fault() -> None:
    fault = FAULTS["flood"]
    promises = [Check("beyond", 3.0, most=2.0), Check("memory grows", 1.5, "MiB", most=51)]
    found = record("flood, nats", fault, promises, {"confirmed": 7})
    assert not found["holds"]
    suite = Suite(
        FAULTS,
        _PAGE,
        {"too much": "beyond", "lost": "lost"},
        {"confirmed": "confirmed"},
        "",
        own=True,
    )
    assert suite.row(found) == [
        "flood, nats: publishers send ten times the rate", "3 (at most 2) BROKEN", "",
        "memory grows: 1.5 MiB (at most 51)", "7",
    ]  # fmt: skip
    assert record("flood, nats", fault, promises[1:], {})["holds"]
