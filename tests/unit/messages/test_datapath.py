"""Limits on messages that change while messages wait, in every mode, with or without clients."""

from __future__ import annotations

import dataclasses

import pytest

from drld.errors import DatapathError
from drld.messages.gate import Fate
from drld.messages.spec import ITEM, ByClient, Excess
from drld.model import NS_PER_S, Enforcement, Measurement
from drld.police.arrival_time import LATEST_NS
from drld.police.token_bucket import TokenBucket
from drld.policy import Keyed, Mode
from drld.spec import LimitSpec
from tests.factories import with_policy

from .made import (
    MS,
    attach,
    client,
    datapath,
    forwarded,
    frame,
    message_limit,
    offered,
    record,
    released,
)

NONE = Enforcement()


def measured(interval_ms: int, arrived: int, forwarded: int, dropped: int = 0) -> Measurement:
    return Measurement(
        interval_ns=interval_ms * MS,
        arrived_tokens=arrived * ITEM,
        arrived_items=arrived,
        forwarded_tokens=forwarded * ITEM,
        forwarded_items=forwarded,
        dropped_tokens=dropped * ITEM,
        dropped_items=dropped,
    )


def without_backlog(found: Measurement) -> Measurement:
    return dataclasses.replace(measured(0, 0, 0), **{
        key.name: getattr(found, key.name)
        for key in dataclasses.fields(measured(0, 0, 0))
        if key.name not in ("backlog", "flows", "hits")
    })  # fmt: skip


def test_messages_are_measured_and_a_limit_with_waiting_messages_is_awake() -> None:
    made = datapath(message_limit(rate=10, burst=1))
    lane = made.gate.lane("mqtt")
    assert not made.had_traffic([1])
    offered(made, lane, "a", "abc", 0)
    assert list(made.had_traffic([1])) == [1]
    assert without_backlog(made.read(1, 50 * MS)) == measured(50, 3, 1)
    # Two wait: the limit's share is of use.
    assert list(made.had_traffic([1])) == [1]
    assert forwarded(made, 200 * MS) == "bc"
    assert without_backlog(made.read(1, 250 * MS)) == measured(200, 0, 2)
    assert not made.had_traffic([1])


@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.SHADOW])
def test_the_largest_unfinished_work_is_measured(mode: Mode) -> None:
    """The unfinished work is the bucket's lack and the waiting messages, since the last read."""
    made = datapath(with_policy(message_limit(rate=10, burst=2), mode=mode))
    offered(made, made.gate.lane("mqtt"), "a", "abcd", 0)
    assert made.read(1, 50 * MS).backlog == 4 * ITEM
    later = made.read(1, 100 * MS)
    assert (later.backlog, later.saturated) == (0, mode is Mode.ENFORCE)


def test_the_first_interval_begins_when_the_limit_is_attached() -> None:
    made = datapath(message_limit(rate=10, burst=1), now_ns=10**15)
    offered(made, made.gate.lane("mqtt"), "a", "a", 10**15)
    assert made.read(1, 10**15 + 50 * MS).interval_ns == 50 * MS


def test_delays_are_of_the_last_minute_though_nothing_is_measured_any_more() -> None:
    made = datapath(message_limit(rate=10, burst=1))
    offered(made, made.gate.lane("mqtt"), "a", "a", 0)
    made.read(1, 0)
    made.flush(59 * NS_PER_S)
    assert made.waits(1).delays.items == 1
    made.flush(61 * NS_PER_S)
    assert made.waits(1).delays.items == 0


def test_a_reload_takes_effect_on_those_that_wait() -> None:
    """11,000 messages a second to 2,000 while 5,000 wait: none is lost, and the order stays."""
    fast = message_limit(rate=11_000, burst=26)
    made = datapath(fast)
    lanes = [made.gate.lane("mqtt") for _ in range(10)]
    for number in range(5026):
        made.gate.offer(lanes[number % 10], frame("a", f"{number}"), 0)
    assert made.waits(1).waiting == 5000
    at_ns = 10 * MS
    left = released(made, at_ns)
    assert len(left) == 110
    attach(made, with_policy(fast, rate=2000 * ITEM), now_ns=at_ns)
    assert released(made, at_ns) == []
    more = released(made, at_ns + NS_PER_S)
    assert len(more) == 2000
    rest = released(made, at_ns + 10 * NS_PER_S)
    numbers = [int(text) for text, _ in (*left, *more, *rest)]
    assert sorted(numbers) == [*range(26, 5026)]
    for lane in range(10):
        own = [number for number in numbers if number % 10 == lane]
        assert own == sorted(own)
    assert made.waits(1).waiting == 0
    assert made.gate.due_ns is None


@pytest.mark.parametrize("change", ["removed", "shadow", "paused", "dropping", "per client"])
def test_all_leave_at_once_when_nothing_holds_them_any_more(change: str) -> None:
    limit = message_limit(rate=10, burst=1)
    made = datapath(limit)
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "abcdef", 0) == "a"
    changes: dict[str, list[LimitSpec]] = {
        "removed": [],
        "shadow": [with_policy(limit, mode=Mode.SHADOW)],
        "paused": [with_policy(limit, mode=Mode.PAUSE)],
        "dropping": [with_policy(limit, excess=Excess.DROP)],
        "per client": [message_limit(rate=10, burst=1, client=ByClient.ID)],
    }
    attach(made, *changes[change], now_ns=50 * MS)
    assert forwarded(made, 50 * MS) == "bcdef"
    assert made.gate.held_bytes == 0
    assert made.gate.due_ns is None


def test_a_removed_limit_is_passed_by_those_that_wait_for_another_first() -> None:
    first, second = message_limit("#", id=1, rate=10, burst=1), message_limit("#", id=2, rate=1)
    made = datapath(first, second)
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "abcde", 0) == "a"
    attach(made, first, now_ns=0)
    assert forwarded(made, 400 * MS) == "bcde"


def test_counts_outlive_a_reload() -> None:
    limit = message_limit(rate=10, burst=1)
    made = datapath(limit)
    offered(made, made.gate.lane("mqtt"), "a", "abc", 0)
    attach(made, with_policy(limit, mode=Mode.SHADOW), now_ns=0)
    assert without_backlog(made.read(1, 50 * MS)) == measured(50, 3, 1)


def test_another_topic_is_matched_after_a_reload() -> None:
    limit = message_limit("a", rate=10, burst=1)
    made = datapath(limit)
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "ab", 0) == "a"
    attach(made, message_limit("b", rate=10, burst=1), now_ns=0)
    other = made.gate.lane("mqtt")
    assert offered(made, other, "a", "c", 0) == "c"
    # It is the same limit: b waits for its token, and d behind it.
    assert offered(made, other, "b", "d", 0) == ""
    assert forwarded(made, 200 * MS) == "bd"


def test_a_filter_of_another_protocol_is_refused_and_nothing_is_changed() -> None:
    limit = message_limit("a/#", rate=10, burst=1)
    made = datapath(limit)
    with pytest.raises(
        DatapathError, match=r"limit limit2: match\.topic: must be a topic"
    ) as error:
        attach(made, message_limit("a/#/b", id=2), now_ns=0)
    assert set(error.value.limits) == {2}
    assert offered(made, made.gate.lane("mqtt"), "a/b", "ab", 0) == "a"
    # The fleet's limit may be about a broker of another limiter.
    attach(made, limit, message_limit(">>", id=3, broker=("elsewhere",)), now_ns=0)


def test_shadow_mode_counts_what_would_have_waited_and_for_how_long() -> None:
    limit = message_limit(rate=10, burst=1)
    real, shadow = datapath(limit), datapath(with_policy(limit, mode=Mode.SHADOW))
    times = [0, 0, 10, 300, 310, 311, 2000]
    left = 0
    for each in (real, shadow):
        lane = each.gate.lane("mqtt")
        for at_ms in times:
            left += len(released(each, at_ms * MS))
            fate = each.gate.offer(lane, frame("a"), at_ms * MS)
            if each is shadow:
                assert fate is Fate.FORWARD
    assert shadow.waits(1).waiting == 0
    # Those that waited.
    assert left + len(released(real, 2000 * MS)) == 4
    assert real.waits(1).waited == shadow.waits(1).waited == 4
    for each in (real, shadow):
        each.read(1, 2000 * MS)
    assert real.waits(1).delays == shadow.waits(1).delays
    assert real.waits(1).delays.items == len(times)
    assert shadow.gate.held_bytes == 0


@pytest.mark.parametrize("by", [None, ByClient.ADDRESS])
def test_a_flood_in_shadow_mode_is_forgotten_when_the_rate_changes(by: ByClient | None) -> None:
    limit = message_limit(rate=10, burst=1, mode=Mode.SHADOW, client=by)
    made = datapath(limit)
    offered(made, made.gate.lane("mqtt", "10.0.0.1"), "a", "a" * 1001, 0)
    offered(made, made.gate.lane("mqtt", "10.0.0.2"), "a", "a" * (by is not None), 0)
    made.flush(NS_PER_S)
    assert made.waits(1).waiting == 990
    attach(made, with_policy(limit, interval_ns=10**8), now_ns=NS_PER_S)
    assert made.waits(1).waiting == 990
    attach(made, with_policy(limit, rate=20 * ITEM), now_ns=NS_PER_S)
    assert made.waits(1).waiting == 0


def test_dropped_messages_are_counted_and_never_wait() -> None:
    made = datapath(message_limit(rate=10, burst=2, excess=Excess.DROP))
    lane = made.gate.lane("mqtt")
    fates = [made.gate.offer(lane, frame("a"), 0) for _ in range(4)]
    assert fates == [Fate.FORWARD, Fate.FORWARD, Fate.DROP, Fate.DROP]
    found = made.read(1, 50 * MS)
    assert without_backlog(found) == measured(50, 4, 2, 2)
    # Connections are flows, for allocators that have some.
    assert list(found.flows.values()) == [4 * ITEM]
    assert made.gate.due_ns is None


def test_clients_that_would_wait_are_counted_without_a_call_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scrape with 100,000 of them must not stop the messages."""
    limit = message_limit(rate=2, burst=2.5, mode=Mode.SHADOW, client=ByClient.ID)
    made, one = datapath(limit), message_limit(rate=2, burst=2.5, mode=Mode.SHADOW)
    alone = [datapath(one) for _ in range(40)]
    for number, other in enumerate(alone):
        lane = made.gate.lane("mqtt")
        lane.client = client(f"{number}")
        for _ in range(number % 7):
            for each, its in ((made, lane), (other, other.gate.lane("mqtt"))):
                offered(each, its, "a", "x", number * 100 * MS)
    for at_ms in (3890, 3900, 4100, 4321, 6000, 60_000):
        for other in alone:
            other.flush(at_ms * MS)
        expected = sum(other.waits(1).waiting for other in alone)
        with monkeypatch.context() as patched:
            patched.setattr(TokenBucket, "tokens_at", None)
            made.flush(at_ms * MS)
            assert made.waits(1).waiting == expected
    assert expected == 0


def test_in_shadow_mode_nothing_is_dropped() -> None:
    made = datapath(message_limit(rate=10, burst=2, excess=Excess.DROP, mode=Mode.SHADOW))
    assert offered(made, made.gate.lane("mqtt"), "a", "abcd", 0) == "abcd"
    assert without_backlog(made.read(1, 50 * MS)) == measured(50, 4, 2, 2)


@pytest.mark.parametrize("excess", Excess)
def test_a_record_takes_effect_at_its_time_though_earlier_messages_are_read_later(
    excess: Excess,
) -> None:
    """A stream that conforms does not wait because a tick came before it was read: the bucket would
    have been filled to its depth once instead of all the time."""
    limit = message_limit(rate=1000, burst=10, excess=excess)
    made = datapath(limit)
    lane = made.gate.lane("mqtt")
    half = dataclasses.replace(record(limit), fill_rate=500 * ITEM)
    made.program(1, half, (), 200 * MS)
    # What arrived in the meantime is read only now.
    fates = {made.gate.offer(lane, frame("a"), at_ms * MS) for at_ms in range(200)}
    assert fates == {Fate.FORWARD}
    # From then on the new rate holds.
    later = [made.gate.offer(lane, frame("a"), at_ms * MS) for at_ms in range(200, 300)]
    held = sum(fate is not Fate.FORWARD for fate in later)
    # Ten and half of those that come then pass at once; all others wait, or half of them.
    assert held == pytest.approx({Excess.WAIT: 80, Excess.DROP: 40}[excess], abs=1)


def test_a_record_waits_no_longer_than_messages_may_be_late() -> None:
    made = datapath(message_limit(rate=1000, burst=10))
    lane = made.gate.lane("mqtt")
    made.program(1, Enforcement(fill_rate=0, depth=0), (), 0)
    made.program(1, Enforcement(fill_rate=0, depth=0), (), LATEST_NS)
    assert offered(made, lane, "a", "a", 0) == ""


def test_a_record_is_in_force_at_once_where_messages_wait() -> None:
    limit = message_limit(rate=1, burst=1)
    made = datapath(limit)
    lane = made.gate.lane("mqtt")
    assert offered(made, lane, "a", "abc", 0) == "a"
    made.program(1, dataclasses.replace(record(limit), fill_rate=1000 * ITEM), (), 100 * MS)
    assert forwarded(made, 102 * MS) == "bc"


def test_each_client_has_a_bucket_of_its_own() -> None:
    limit = message_limit(rate=10, burst=1, client=ByClient.ID)
    made = datapath(limit)
    # The engine's record is of no use to it.
    made.program(1, NONE, (), 0)
    lanes = [made.gate.lane("mqtt", "10.0.0.1") for _ in range(3)]
    for lane, name in zip(lanes, ("one", "two", "one"), strict=True):
        lane.client = client(name)
    assert offered(made, lanes[0], "a", "ab", 0) == "a"
    assert offered(made, lanes[1], "a", "cd", 0) == "c"
    assert offered(made, lanes[2], "a", "e", 0) == ""
    assert sorted(forwarded(made, 100 * MS)) == ["b", "d"]
    assert forwarded(made, 200 * MS) == "e"
    assert without_backlog(made.read(1, 200 * MS)) == measured(200, 5, 5)


@pytest.mark.parametrize(
    ("by", "same"),
    [(ByClient.ID, False), (ByClient.USER, True), (ByClient.ADDRESS, True)],
)
def test_id_user_or_address_tells_clients_apart(by: ByClient, same: bool) -> None:
    made = datapath(message_limit(rate=10, burst=1, client=by))
    lanes = [made.gate.lane("mqtt", "10.0.0.1") for _ in range(2)]
    lanes[0].client, lanes[1].client = client("a", "user"), client("b", "user")
    assert offered(made, lanes[0], "a", "a", 0) == "a"
    assert offered(made, lanes[1], "a", "b", 0) == ("" if same else "b")


def test_a_client_that_says_nothing_of_itself_is_known_by_its_address() -> None:
    made = datapath(message_limit(rate=10, burst=1, client=ByClient.USER))
    lanes = [made.gate.lane("mqtt", address) for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2")]
    assert [offered(made, lane, "a", "a", 0) for lane in lanes] == ["a", "", "a"]
    # Nor can another client take its bucket by its name.
    named = made.gate.lane("mqtt", "10.0.0.3")
    named.client = client("x", "10.0.0.1")
    assert offered(made, named, "a", "a", 0) == "a"


@pytest.mark.parametrize(
    ("excess", "mode", "passed"),
    [(Excess.DROP, Mode.ENFORCE, "a"), (Excess.WAIT, Mode.SHADOW, "abc"),
     (Excess.DROP, Mode.SHADOW, "abc"), (Excess.WAIT, Mode.PAUSE, "abc"),
     (Excess.DROP, Mode.PAUSE, "abc")],
)  # fmt: skip
def test_buckets_of_clients_have_every_mode(excess: Excess, mode: Mode, passed: str) -> None:
    limit = message_limit(rate=10, burst=1, client=ByClient.ADDRESS, excess=excess, mode=mode)
    made = datapath(limit)
    assert offered(made, made.gate.lane("mqtt", "10.0.0.1"), "a", "abc", 0) == passed
    assert offered(made, made.gate.lane("mqtt", "10.0.0.2"), "a", "abc", 0) == passed
    assert len(released(made, NS_PER_S)) == 0


def test_buckets_that_are_full_again_are_forgotten_and_others_are_bounded() -> None:
    limit = message_limit(rate=10, burst=1, client=ByClient.ID)
    made = datapath(with_policy(limit, keyed=Keyed("client", 20)))

    def come(name: str, at_ms: int) -> str:
        lane = made.gate.lane("mqtt")
        lane.client = client(name)
        return offered(made, lane, "a", "x", at_ms * MS)

    def clients() -> int:
        found = made.waits(1).clients
        assert found is not None
        return found

    # Each is full again after 100 ms.
    for number in range(1000):
        assert come(f"{number}", number * 100) == "x"
    assert clients() < 10
    for number in range(100):
        if clients() < 20:
            assert come(f"more{number}", 100_000) == "x"
    assert [come(f"even more{number}", 100_000) for number in range(3)] == ["x", "", ""]
    assert clients() == 20
    assert made.counters()["messages_of_clients_beyond_the_bound"] == 3
    # Those that wait there leave, too.
    assert len(released(made, 200_000 * MS)) == 2


def test_a_reload_reaches_the_buckets_of_all_clients() -> None:
    limit = message_limit(rate=10, burst=1, client=ByClient.ADDRESS)
    made = datapath(limit)
    lanes = [made.gate.lane("mqtt", f"10.0.0.{number}") for number in range(3)]
    for lane in lanes:
        assert offered(made, lane, "a", "abc", 0) == "a"
    attach(made, with_policy(limit, rate=1000 * ITEM), now_ns=0)
    assert sorted(forwarded(made, 2 * MS)) == sorted("bc" * 3)
    attach(made, now_ns=2 * MS)
    assert offered(made, lanes[0], "a", "xyz", 2 * MS) == "xyz"


def test_a_copy_of_the_bucket_says_how_long_the_next_message_would_wait() -> None:
    made = datapath(message_limit(rate=10, burst=1))
    lane = made.gate.lane("mqtt")
    assert made.snapshot(1, lane).wait_ns(0, ITEM, 0) == 0
    offered(made, lane, "a", "abc", 0)
    made.flush(0)
    assert made.snapshot(1, lane).wait_ns(0, ITEM, 0) == 300 * MS
    made.flush(50 * MS)
    assert made.snapshot(1, lane).wait_ns(0, ITEM, 50 * MS) == 250 * MS
    # Nothing was settled: what is read later may have arrived before.
    assert len(lane) == 2
    assert made.gate.due_ns == 100 * MS


def test_a_stopped_daemon_lets_all_that_wait_go() -> None:
    made = datapath(message_limit(rate=10, burst=1))
    offered(made, made.gate.lane("mqtt"), "a", "abc", 0)
    made.detach()
    assert forwarded(made, 0) == "bc"
    made.detach()
