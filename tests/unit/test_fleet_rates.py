"""Requests for other limiters' rates: only while a client looks, and within bounds."""

from __future__ import annotations

import pytest

from drld import fleet_rates
from drld.errors import WireError
from drld.fleet_rates import (
    MOST_ANSWERS,
    MOST_MISSED,
    MOST_QUESTIONS,
    MOST_WATCHED,
    PERIOD_NS,
    WATCH_NS,
    FleetRates,
    Rate,
)
from drld.gossip.wire.counts_codec import KIND, Counts
from drld.gossip.wire.message import codec_of
from drld.model import NS_PER_S
from tests.factories import MS

TICK_NS = 50 * MS


class Limiter:
    """A limiter that forwards 1,000 tokens a second of limit 1, drops 100, and has no other."""

    def __init__(self) -> None:
        self.rates = FleetRates(self.counted)
        self.now_ns = 0

    def counted(self, limit_id: int, now_ns: int) -> Counts | None:
        if limit_id != 1:
            return None
        return Counts(1, False, now_ns, now_ns * 1000 // NS_PER_S, now_ns * 100 // NS_PER_S)

    def tick(self, *messages: tuple[str, Counts]) -> list[tuple[str, Counts]]:
        """A tick after these messages; what it sends."""
        self.now_ns += TICK_NS
        for peer, counts in messages:
            self.rates.handlers[KIND](peer, counts, self.now_ns)
        sent = list(self.rates.tick(self.now_ns))
        assert {kind for _, kind, _ in sent} <= {KIND}
        return [(peer, counts) for peer, _, counts in sent]


def exchange(asker: Limiter, other: Limiter, seconds: int) -> None:
    """Let an asker, and another that it calls lim2, tick."""
    to_asker: list[tuple[str, Counts]] = []
    for _ in range(seconds * NS_PER_S // TICK_NS):
        to_other = asker.tick(*to_asker)
        to_asker = [("lim2", it) for _, it in other.tick(*[("lim1", it) for _, it in to_other])]


def test_rates_are_requested_only_while_a_client_looks() -> None:
    asker = Limiter()
    assert [asker.tick() for _ in range(40)] == [[]] * 40
    asker.rates.watch(1, ["lim2", "lim3"], asker.now_ns)
    assert asker.tick() == [("lim2", Counts(1, asks=True)), ("lim3", Counts(1, asks=True))]
    sent = [asker.tick() for _ in range(2 * WATCH_NS // TICK_NS)]
    assert sum(map(len, sent)) == 2 * (WATCH_NS // PERIOD_NS - 1)
    assert sent[-1] == []


def test_a_rate_is_exact_after_two_answers() -> None:
    asker, other = Limiter(), Limiter()
    asker.rates.watch(1, ["lim2"], 0)
    asker.rates.watch(7, ["lim2"], 0)
    exchange(asker, other, 1)
    assert asker.rates.rates(1) == []
    exchange(asker, other, 1)
    assert asker.rates.rates(1) == [Rate("lim2", 1000.0, 100.0)]
    # It has no limit 7, and says nothing.
    assert asker.rates.rates(7) == asker.rates.rates(2) == []


def test_another_life_of_a_peer_begins_again() -> None:
    asker, other = Limiter(), Limiter()
    asker.rates.watch(1, ["lim2"], 0)
    exchange(asker, other, 2)
    asker.rates.on_session("lim2")
    assert asker.rates.rates(1) == []
    # Without a session, too, totals that have shrunk make no rate.
    exchange(asker, other, 2)
    before = asker.rates.rates(1)
    exchange(asker, Limiter(), 1)
    assert asker.rates.rates(1) == before != []


def test_a_peer_that_answers_no_more_is_not_known() -> None:
    asker, other = Limiter(), Limiter()
    asker.rates.watch(1, ["lim2"], 0)
    exchange(asker, other, 2)
    for _ in range((MOST_MISSED + 1) * PERIOD_NS // TICK_NS):
        asker.rates.watch(1, ["lim2"], asker.now_ns)
        asker.tick()
    assert asker.rates.rates(1) == []


def test_peers_that_a_reload_removes_are_not_asked() -> None:
    asker = Limiter()
    asker.rates.watch(1, [f"lim{n}" for n in range(100)], 0)
    asker.tick()
    asker.rates.set_peers(["lim1"])
    assert asker.tick() == []
    asker.rates.watch(1, ["lim1"], asker.now_ns)
    assert [asker.tick() for _ in range(PERIOD_NS // TICK_NS)][-2:] == [
        [("lim1", Counts(1, asks=True))],
        [],
    ]


def test_requests_for_rates_are_bounded() -> None:
    asker = Limiter()
    for limit_id in range(1, 10):
        asker.rates.watch(limit_id, [f"lim{n}" for n in range(50)], 0)
    seen: dict[int, int] = {}
    for _ in range(PERIOD_NS // TICK_NS):
        sent = asker.tick()
        assert len(sent) <= MOST_QUESTIONS
        for _, counts in sent:
            seen[counts.limit_id] = seen.get(counts.limit_id, 0) + 1
    assert seen == dict.fromkeys(range(1, MOST_WATCHED + 1), 50)
    questions = [(f"lim{n}", Counts(1, asks=True)) for n in range(100) for _ in range(3)]
    assert len(Limiter().tick(*questions)) == MOST_ANSWERS
    # An answer without a question is not kept.
    other = Limiter()
    other.tick(("lim2", Counts(1, False, 1, 1, 1)))
    assert other.rates.rates(1) == []


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        (Counts(0, False, 1, 2, 3), "limit"),
        (Counts(1, asks=True, counted_ns=1), "reserved"),
        (Counts(1, asks=True, dropped=1), "reserved"),
    ],
)
def test_an_invalid_message_is_refused(counts: Counts, reason: str) -> None:
    codec = codec_of(KIND)
    with pytest.raises(WireError, match=reason):
        codec.decode_untrusted(codec.encode(counts, 0, 0))
    good = Counts(1, False, 2**64 - 1, 2**64 - 1, 0)
    assert codec.decode_untrusted(codec.encode(good, 0, 0)) == good


def test_a_large_fleet_is_asked_in_time() -> None:
    """A thousand limiters are asked in two seconds, as the module says."""
    asker = Limiter()
    asker.rates.watch(1, [f"lim{n}" for n in range(1000)], 0)
    asked = [peer for _ in range(2 * NS_PER_S // TICK_NS) for peer, _ in asker.tick()]
    assert len(set(asked)) == 1000
    assert fleet_rates.LEAST_NS < PERIOD_NS
