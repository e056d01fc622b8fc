"""The bytes that do not conform to a rate and a depth."""

from __future__ import annotations

from testbed.stamps import beyond

MS = 1_000_000


def test_a_burst_of_the_depth_conforms_and_no_byte_more() -> None:
    burst = [(5, 1000)] * 3
    assert beyond(burst, 1000, 3000) == 0
    assert beyond(burst, 1000, 2999) == 1


def test_time_fills_the_bucket_and_not_beyond_its_depth() -> None:
    # 1 MB/s: a packet a millisecond.
    paced = [(number * MS, 1000) for number in range(50)]
    assert beyond(paced, 1_000_000, 1000) == 0
    assert beyond(paced, 999_000, 1000) == 25
    assert beyond([(0, 1000), (900 * MS, 1000), (900 * MS, 1000)], 1_000_000, 1000) == 1


def test_times_may_be_of_any_clock_and_in_any_order() -> None:
    late = [(10**18 + number * MS, 1000) for number in (3, 1, 2, 0)]
    assert beyond(late, 1_000_000, 1000) == 0
