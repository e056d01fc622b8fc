"""The oracle on a limiter's bucket: it holds for drld's, and fails for others."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.messages.hold import Hold
from drld.model import NS_PER_S, Enforcement
from testbed.messages.real.frames import SIZE, Deliveries, Message, Protocol, publication
from testbed.messages.real.oracle import ideal, judge
from testbed.messages.real.oracle_command import schedule

ITEM = 1_000_000
RATE, BURST = 200, 26
SENT = [at_ns for at_ns, _ in schedule(Random(1), 40, RATE, BURST, 20.0)]


def held(sent_ns: list[int], rate: int, burst: int) -> list[int]:
    """The times at which the messages leave drld's own bucket."""
    hold: Hold[int] = Hold(Enforcement(fill_rate=rate * ITEM, depth=burst * ITEM), 0)
    left = dict.fromkeys(range(len(sent_ns)), 0)
    for number, at_ns in enumerate(sent_ns):
        if hold.offer(number, at_ns):
            left[number] = at_ns
    while (due_ns := hold.due_ns) is not None:
        for message, waited_ns in hold.release(due_ns):
            left[message] = sent_ns[message] + waited_ns
    return [left[number] for number in range(len(sent_ns))]


@given(
    gaps=st.lists(st.integers(0, 30_000_000), min_size=1, max_size=60),
    rate=st.integers(50, 500),
    burst=st.integers(1, 10),
)
def test_the_ideal_bucket_is_that_of_drld(gaps: list[int], rate: int, burst: int) -> None:
    sent_ns = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    pairs = zip(ideal(sent_ns, rate, burst), held(sent_ns, rate, burst), strict=True)
    # Tokens are whole, and so are nanoseconds.
    assert all(abs(due_ns - left_ns) <= len(gaps) for due_ns, left_ns in pairs)


@pytest.mark.parametrize("late_ns", [0, 1_000_000, 80_000_000])
def test_a_bucket_that_is_sometimes_late_holds(late_ns: int) -> None:
    rng = Random(2)
    came_ns = [at_ns + rng.randint(0, late_ns) + 100 for at_ns in ideal(SENT, RATE, BURST)]
    assert judge(SENT, came_ns, RATE, BURST).holds


def each_connection() -> list[int]:
    own: defaultdict[int, list[int]] = defaultdict(list)
    for at_ns, publisher in schedule(Random(1), 40, RATE, BURST, 20.0):
        own[publisher].append(at_ns)
    return [left for sent in own.values() for left in ideal(sent, RATE, BURST)]


def each_second() -> list[int]:
    passed: defaultdict[int, int] = defaultdict(int)
    came = []
    for sent_ns in SENT:
        at_ns = sent_ns
        while passed[at_ns // NS_PER_S] >= RATE:
            at_ns = (at_ns // NS_PER_S + 1) * NS_PER_S
        passed[at_ns // NS_PER_S] += 1
        came.append(at_ns)
    return came


@pytest.mark.parametrize(
    "came_ns",
    [
        pytest.param(SENT, id="no limit"),
        pytest.param(ideal(SENT, RATE, BURST + 2), id="two messages too deep"),
        pytest.param(ideal(SENT, RATE * 101 // 100, BURST), id="one per cent too fast"),
        pytest.param(each_connection(), id="a bucket for each connection"),
        pytest.param(each_second(), id="a window of a second"),
    ],
)
def test_another_limiter_is_found_out(came_ns: list[int]) -> None:
    assert not judge(SENT, came_ns, RATE, BURST).holds


@pytest.mark.parametrize("protocol", ["mqtt", "nats"])
def test_deliveries_are_found_whatever_their_pieces_are(protocol: Protocol) -> None:
    messages = [Message(number % 3, number, 10**18 + number) for number in range(20)]
    data = b"".join(publication(protocol, message) for message in messages)
    if protocol == "nats":
        # A delivery has the number of the subscription in the place of nothing.
        data = data.replace(b"PUB srtm.topic", b"MSG srtm.topic 1").replace(
            b"MSG srtm.topic 1 150", b"PING\r\nMSG srtm.topic 1 150", 1
        )
    for size in (1, 7, SIZE, len(data)):
        deliveries = Deliveries(protocol)
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        assert [message for piece in pieces for message in deliveries.feed(piece)] == messages
