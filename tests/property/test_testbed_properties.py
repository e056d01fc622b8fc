"""Laws of the testbed's arithmetic."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import result
from testbed.delay import DelayedLink, ErrorAccount

RATES = st.lists(st.floats(0, 1e9), min_size=1, max_size=20)
ERRORS = st.lists(st.integers(0, 200_000_000), min_size=1, max_size=200)
ARRIVALS = st.lists(st.integers(0, 10_000_000), min_size=1, max_size=60)


@given(RATES.filter(lambda rates: max(rates) > 1e-3))
def test_jains_index_lies_between_one_nth_and_one_in_any_unit(rates: list[float]) -> None:
    index = result.jain(rates)
    assert 1 / len(rates) - 1e-9 <= index <= 1 + 1e-9
    assert result.jain([8 * rate for rate in rates]) == pytest.approx(index)


@given(st.lists(st.integers(0, 100_000), min_size=2, max_size=60), st.floats(0, 0.0249))
def test_windows_neither_lose_nor_invent_bytes(steps: list[int], shift: float) -> None:
    times = [index * 0.05 + (shift if index % 2 else 0) for index in range(len(steps) + 1)]
    values = [sum(steps[:index]) for index in range(len(steps) + 1)]
    end = 0.05 * (len(steps) // 2) * 2
    rates = result.rates_bps(times, values, 0.0, min(end, times[-1]), 0.1)
    counted = sum(rates) * 0.1 / 8
    covered = result.at(times, values, min(len(rates) * 0.1, times[-1]))
    assert counted == pytest.approx(covered, abs=1e-3)


@given(ERRORS, st.floats(0.01, 1))
def test_a_percentile_lies_within_a_bucket_of_the_true_one(errors: list[int], share: float) -> None:
    account = ErrorAccount()
    for error in errors:
        account.add(error)
    ordered = sorted(errors)
    true = next(value for rank, value in enumerate(ordered, 1) if rank >= share * len(ordered))
    found_ns = round(account.percentile_us(share) * 1000)
    if true < 100_000_000:
        assert true <= found_ns <= true + 10_000 + 1
    else:
        assert found_ns == ordered[-1]


@given(ARRIVALS, st.integers(0, 50_000_000), st.floats(0, 0.9), st.integers(1, 10))
def test_a_link_releases_everything_once_in_order_and_never_early(
    arrivals: list[int], delay_ns: int, loss: float, batch: int
) -> None:
    link = DelayedLink(delay_ns, loss, Random(1))
    for packet, arrived in enumerate(arrivals, 1):
        link.arrive(packet, arrived)
    decided, released, dropped = 0, 0, 0
    while (due := link.next_due) is not None:
        assert link.release(due - 1, batch) == ([], [])
        actions, dues = link.release(due, batch)
        assert 1 <= len(dues) <= batch
        assert all(when <= due for when in dues)
        for action in actions:
            assert action.through > decided
            if action.accept:
                released += action.through - decided
            else:
                assert action.through == decided + 1
                dropped += 1
            decided = action.through
    assert decided == len(arrivals)
    assert released + dropped == len(arrivals)
    assert dropped == link.lost


@given(ARRIVALS)
def test_a_packet_is_due_no_earlier_than_its_own_delay(arrivals: list[int]) -> None:
    link = DelayedLink(1000, 0.0, Random(1))
    for packet, arrived in enumerate(arrivals, 1):
        link.arrive(packet, arrived)
    _, dues = link.release(2**62, len(arrivals))
    assert all(due >= arrived + 1000 for due, arrived in zip(dues, arrivals, strict=True))
    assert dues == sorted(dues)
    assert dues[-1] == max(arrivals) + 1000
