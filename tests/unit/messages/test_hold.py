"""A bucket whose excess waits: order, times and what a late daemon changes (nothing)."""

from __future__ import annotations

from drld.messages.hold import Hold, Released
from drld.model import Enforcement

MESSAGE = 1_000_000
RATE = 10 * MESSAGE
"""Ten messages a second: a token each 100 ms."""
MS = 1_000_000


def a_hold(depth: float = 2, rate: int = RATE) -> Hold[str]:
    return Hold(Enforcement(fill_rate=rate, depth=int(depth * MESSAGE)), 0)


def offered(hold: Hold[str], names: str, at_ms: int = 0) -> list[bool]:
    return [hold.offer(name, at_ms * MS) for name in names]


def test_a_burst_passes_and_the_next_waits_for_its_token() -> None:
    hold = a_hold()
    assert offered(hold, "abcd") == [True, True, False, False]
    assert hold.due_ns == 100 * MS
    assert list(hold.release(100 * MS - 1)) == []
    assert list(hold.release(100 * MS)) == [Released("c", 100 * MS)]
    assert list(hold.release(300 * MS)) == [Released("d", 200 * MS)]
    assert len(hold) == 0
    assert hold.due_ns is None


def test_a_late_daemon_delays_and_changes_no_account() -> None:
    """A waiting message is charged at the time of its token, however late it is taken out."""
    hold, late = a_hold(), a_hold()
    for each in (hold, late):
        offered(each, "abc")
    assert [it.message for it in hold.release(100 * MS)] == ["c"]
    # The other daemon is stopped until 350 ms: its bucket has filled as well.
    assert offered(hold, "de", 350) == [True, True]
    assert offered(late, "de", 350) == [False, False]
    assert list(late.release(350 * MS)) == [
        Released("c", 100 * MS), Released("d", 0), Released("e", 0),
    ]  # fmt: skip
    assert offered(hold, "f", 350) == offered(late, "f", 350) == [False]
    assert hold.due_ns == late.due_ns


def test_a_hold_is_saturated_while_a_message_waits_at_every_moment() -> None:
    hold = a_hold()
    assert not hold.take_saturated()
    offered(hold, "abcd")
    assert not hold.take_saturated(), "it was empty before"
    assert hold.take_saturated()
    list(hold.release(150 * MS))
    assert hold.take_saturated()
    list(hold.release(200 * MS))
    offered(hold, "e", 200)
    assert not hold.take_saturated(), "it was empty in between"
    assert hold.take_saturated()


def test_a_daemon_that_has_stood_still_lets_out_a_full_bucket() -> None:
    """The pause is longer than the time by which messages may be charged before their reading."""
    for late_ms, left in ((350, 3), (351, 2), (10_000, 2)):
        hold = a_hold(depth=2)
        offered(hold, "abcdefgh")
        assert len(list(hold.release(late_ms * MS))) == left
        assert hold.due_ns == (400 * MS if left == 3 else (late_ms + 100) * MS)


def test_a_fraction_of_a_token_is_none_and_is_kept() -> None:
    hold = a_hold(depth=1.5)
    assert offered(hold, "ab") == [True, False]
    assert [it.waited_ns for it in hold.release(200 * MS)] == [50 * MS]


def test_the_backlog_does_not_depend_on_the_depth() -> None:
    backlogs = []
    for depth in (1, 2, 5):
        hold = a_hold(depth)
        offered(hold, "abcd")
        backlogs.append(hold.take_backlog())
    assert backlogs == [4 * MESSAGE] * 3


def test_another_rate_and_depth_hold_from_then_on() -> None:
    hold = a_hold(depth=1)
    offered(hold, "abc")
    hold.program(Enforcement(fill_rate=2 * RATE, depth=5 * MESSAGE), 50 * MS)
    # Half a token was there; the other half comes twice as fast. The larger bucket gets no tokens.
    assert [it.waited_ns for it in hold.release(200 * MS)] == [75 * MS, 125 * MS]
    assert offered(hold, "defghi", 10_000) == [True] * 5 + [False]
    hold.program(Enforcement(fill_rate=0, depth=None), 10_000 * MS)
    assert [it.message for it in hold.release(10_000 * MS)] == ["i"]


def test_without_refill_nothing_is_due() -> None:
    hold = a_hold(depth=1, rate=0)
    assert offered(hold, "ab") == [True, False]
    assert hold.due_ns is None
    assert list(hold.release(10**18)) == []
    assert len(hold) == 1
