"""TCP on the limited host itself, whose senders sleep after each drop, when the last peer has died.

The kernel tells a local sender of a drop at once. Once all that it sent is acknowledged, the sender
sleeps until its probe timer ends: after 200 ms and up to two jiffies. If its first packet is then
dropped, it sleeps for 500 ms. While it is awake, it sends super-packets as fast as it can. So all
senders sleep for the same time, and the times at which they wake up keep their distances.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from drld.model import NS_PER_S

from ..factories import MBIT, MS, flow, limit_spec
from ..fleets.limiters import PACKET, PacketFleet

LIMIT = 40 * MBIT
SUPER_PACKET = 65_212
APART_NS = 20_000
"""The time between two packets of a sender that is awake."""
SLEEP_NS = 208 * MS
REFUSED_SLEEP_NS = 500 * MS
WAKE_NS = [0, 60 * MS, 87 * MS]
"""The distances of three downloads from one host, measured there."""
BEGIN_S, END_S = 10.0, 40.0


def parts(allocator: str) -> list[float]:
    """The part of the survivor's static share that each of its senders gets."""
    fleet = PacketFleet(limit_spec(allocator, rate=LIMIT, burst=LIMIT // 4), 2, seed=1)
    passed: Counter[int] = Counter()

    def send(number: int, *, awake: bool) -> None:
        size = SUPER_PACKET if awake else PACKET
        forwarded = fleet.nodes["l0"].passes(flow(number), size)
        if forwarded and fleet.now_ns >= BEGIN_S * NS_PER_S:
            passed[number] += size
        pause_ns = APART_NS if forwarded else SLEEP_NS if awake else REFUSED_SLEEP_NS
        fleet.at(fleet.now_ns + pause_ns, partial(send, number, awake=bool(forwarded)))

    for number, when_ns in enumerate(WAKE_NS):
        fleet.at(NS_PER_S + when_ns, partial(send, number, awake=False))
    fleet.at(3 * NS_PER_S, fleet.nodes["l1"].kill)
    fleet.run_until(END_S)
    share = LIMIT / 2 * (END_S - BEGIN_S)
    return [passed[number] / share for number in range(len(WAKE_NS))]


def test_a_plain_bucket_gives_each_local_sender_the_tokens_since_the_last_one_woke_up() -> None:
    woke_ns = [WAKE_NS[-1] - SLEEP_NS, *WAKE_NS]
    apart = [(to - begin) / SLEEP_NS for begin, to in zip(woke_ns, WAKE_NS, strict=False)]
    assert parts("static") == pytest.approx(apart, abs=0.1)


def test_fair_gives_local_senders_equal_shares_when_the_last_peer_has_died() -> None:
    assert parts("fair") == pytest.approx([1 / 3] * 3, abs=0.03)
