"""The arithmetic of an emulated link, and its account of its own error, in synthetic time."""

from __future__ import annotations

from random import Random

import pytest

from testbed.delay import DelayedLink, ErrorAccount, LinkReport, Release

MS = 1_000_000


def link(delay_ms: int = 20, loss: float = 0.0, seed: int = 1) -> DelayedLink:
    return DelayedLink(delay_ms * MS, loss, Random(seed))


def report(**changes: int) -> LinkReport:
    account = ErrorAccount()
    for _ in range(1000):
        account.add(100_000)
    return account.report(**{"lost": 0, "stamped": 1000, "overflow": 0, **changes})


def test_a_packet_is_due_its_delay_after_it_arrived() -> None:
    delayed = link()
    delayed.arrive(7, 5 * MS)
    assert delayed.next_due == 25 * MS
    assert delayed.release(25 * MS - 1, 8) == ([], [])
    assert delayed.release(25 * MS, 8) == ([Release(7, True)], [25 * MS])
    assert delayed.next_due is None


def test_late_reading_does_not_add_to_the_delay() -> None:
    delayed = link()
    delayed.arrive(1, 0)
    # Read together at 15 ms; each is due by when it came.
    delayed.arrive(2, 10 * MS)
    assert delayed.release(20 * MS, 8) == ([Release(1, True)], [20 * MS])
    assert delayed.release(30 * MS, 8) == ([Release(2, True)], [30 * MS])


def test_packets_that_are_due_together_are_accepted_by_one_verdict() -> None:
    delayed = link()
    for packet in (3, 4, 5):
        delayed.arrive(packet, packet)
    actions, dues = delayed.release(30 * MS, 8)
    assert actions == [Release(5, True)]
    assert dues == [20 * MS + 3, 20 * MS + 4, 20 * MS + 5]


def test_no_more_than_asked_for_are_released_at_once() -> None:
    delayed = link()
    for packet in range(1, 6):
        delayed.arrive(packet, 0)
    assert delayed.release(30 * MS, 2)[0] == [Release(2, True)]
    assert delayed.next_due == 20 * MS


def test_arrival_times_out_of_order_keep_the_packets_in_order() -> None:
    delayed = link()
    delayed.arrive(1, 2000)
    delayed.arrive(2, 1000)
    assert delayed.release(20 * MS + 1999, 8) == ([], [])
    assert delayed.release(20 * MS + 2000, 8)[0] == [Release(2, True)]


def test_a_lost_packet_is_dropped_on_its_own_between_the_others() -> None:
    delayed = link(loss=0.5, seed=3)
    for packet in range(1, 9):
        delayed.arrive(packet, packet)
    rng = Random(3)
    lost = {packet for packet in range(1, 9) if rng.random() < 0.5}
    assert 0 < len(lost) < 8
    actions, dues = delayed.release(30 * MS, 100)
    assert len(dues) == 8
    assert {action.through for action in actions if not action.accept} == lost
    # What one verdict accepts never reaches over a lost packet that is not yet dropped.
    decided = 0
    for action in actions:
        between = set(range(decided + 1, action.through + 1))
        assert between == {action.through} if not action.accept else not between & lost
        decided = action.through
    assert delayed.lost == len(lost)


def test_the_same_seed_loses_the_same_packets() -> None:
    outcomes = []
    for _ in range(2):
        delayed = link(loss=0.3, seed=11)
        for packet in range(100):
            delayed.arrive(packet, packet)
        outcomes.append(delayed.release(30 * MS, 1000)[0])
    assert outcomes[0] == outcomes[1]


def test_the_account_knows_mean_percentile_worst_and_late_share() -> None:
    account = ErrorAccount()
    for _ in range(990):
        account.add(40_000)
    for error in (2 * MS, *[500_000] * 9):
        account.add(error)
    found = account.report(lost=3, stamped=500, overflow=0)
    assert found.packets == 1000
    assert found.mean_us == pytest.approx((990 * 40 + 2000 + 9 * 500) / 1000)
    assert found.p99_us == 50
    assert account.percentile_us(0.995) == 510
    assert found.worst_us == 2000
    assert found.late_share == 0.001
    assert found.stamped_share == 0.5
    assert found.lost == 3


def test_a_percentile_is_never_above_the_worst() -> None:
    account = ErrorAccount()
    account.add(12_000)
    assert account.percentile_us(0.99) == 12


def test_errors_beyond_the_buckets_are_kept_as_the_worst() -> None:
    account = ErrorAccount()
    account.add(3_000_000_000)
    assert account.percentile_us(0.5) == account.report(lost=0, stamped=0, overflow=0).worst_us
    assert account.percentile_us(0.5) == 3_000_000


def test_an_account_of_nothing_is_no_problem() -> None:
    assert ErrorAccount().report(lost=0, stamped=0, overflow=0).problem() is None


def test_a_link_that_kept_up_has_no_problem() -> None:
    assert report().problem() is None


def test_packets_that_the_kernel_dropped_are_a_problem() -> None:
    assert "dropped 2 packets" in str(report(overflow=2).problem())


@pytest.mark.parametrize(("late", "refused"), [(10, False), (11, True)])
def test_more_than_one_per_cent_of_late_packets_are_a_problem(late: int, refused: bool) -> None:
    account = ErrorAccount()
    for index in range(1000):
        account.add(1_000_001 if index < late else 1_000_000)
    problem = account.report(lost=0, stamped=0, overflow=0).problem()
    assert (problem is not None) == refused
    assert not refused or "could not keep up" in str(problem)


def test_one_long_stall_is_a_problem() -> None:
    account = ErrorAccount()
    for _ in range(10_000):
        account.add(10_000)
    account.add(50 * MS + 1)
    assert "stalled" in str(account.report(lost=0, stamped=0, overflow=0).problem())
