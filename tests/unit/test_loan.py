"""The account of a limiter with `fair`: its balance, and the bucket that the balance allows."""

import pytest

from drld.allocators.loan import LAST_S, LAST_TICKS, LoanAccount


def account(*, balance: int = 10_000, capacity: int = 10_000, income: int = 1_000) -> LoanAccount:
    """An account with this balance, bytes, and this income, bytes/s."""
    made = LoanAccount()
    made.settle(0, income, capacity, 1.0)
    made.settle(capacity + income - balance, income, capacity, 1.0)
    assert made.balance == balance
    return made


def test_an_account_begins_full_and_pays_for_forwarded_bytes() -> None:
    """Whatever its datapath forwarded before there was an account."""
    made = LoanAccount()
    made.settle(2_000_000, 1_000, 10_000, 1.0)
    assert made.balance == 10_000
    assert account(balance=4_000).balance == 4_000


@pytest.mark.parametrize(
    ("before", "forwarded", "income", "capacity", "seconds", "after"),
    [
        pytest.param(4_000, 500, 99_999, 10_000, 2.0, 5_500, id="it earns its last income"),
        pytest.param(10_000, 0, 1_000, 10_000, 60.0, 10_000, id="it holds its capacity"),
        pytest.param(10_000, 0, 1_000, 6_000, 1.0, 6_000, id="it holds a smaller capacity"),
        pytest.param(1_000, 9_000, 1_000, 10_000, 1.0, -7_000, id="it owes what was unasked"),
        pytest.param(10_000, 2_000_000, 1_000, 10_000, 7.0, -10_000, id="it owes its capacity"),
    ],
)
def test_a_settling_adds_income_and_takes_what_was_forwarded(
    *, before: int, forwarded: int, income: int, capacity: int, seconds: float, after: int
) -> None:
    """A daemon that was frozen for a while finds what its datapath forwarded meanwhile."""
    made = account(balance=before)
    made.settle(forwarded, income, capacity, seconds)
    assert made.balance == after
    assert made.missing == capacity - after
    assert made.capacity == capacity


def test_an_account_in_debt_fills_nothing() -> None:
    made = account(balance=1_000)
    made.settle(9_000, 1_000, 10_000, 1.0)
    assert made.fill_rate(50_000, made.depth(5_000, 1_500), 0.05) == 0


def test_an_account_limits_nothing_before_its_first_settling() -> None:
    made = LoanAccount()
    assert made.missing == 0
    assert made.depth(7_000, 1_500) == 7_000
    assert made.fill_rate(123, 7_000, 0.05) == 123


def test_the_bucket_is_no_deeper_than_the_balance_but_for_a_packet() -> None:
    assert account(balance=4_000).depth(9_000, 1_500) == 4_000
    assert account(balance=4_000).depth(3_000, 1_500) == 3_000
    assert account(balance=200).depth(3_000, 1_500) == 1_500


@pytest.mark.parametrize(("interval_s", "lasts_s"), [(0.01, LAST_S), (0.2, 0.4), (1.0, 2.0)])
def test_a_balance_lasts_for_two_intervals(interval_s: float, lasts_s: float) -> None:
    """The tokens of the bucket count; and the balance lasts a tenth of a second at least."""
    made = account(balance=8_000, income=1_000)
    assert made.balance is not None
    depth = made.depth(3_000, 1_500)
    rate = made.fill_rate(1e9, depth, interval_s)
    assert depth + rate * lasts_s == pytest.approx(made.balance + 1_000 * lasts_s)
    assert made.fill_rate(900, depth, interval_s) == 900


def test_a_fill_rate_leaves_the_rest_of_the_balance_to_the_depth() -> None:
    made = account(balance=8_000, income=1_000)
    assert made.spare(1_000, 1.0) == 8_000
    assert made.spare(2_000, 1.0) == 8_000 - LAST_TICKS * 1_000
    assert made.spare(500, 1.0) == 8_000
    assert LoanAccount().spare(500, 1.0) == 0


def test_a_bucket_that_is_deeper_than_the_balance_is_filled_more_slowly_than_the_income() -> None:
    made = account(balance=1_400, income=1_000)
    assert made.fill_rate(5_000, made.depth(9_000, 1_500), 0.5) == pytest.approx(900)
