"""The structs of the kernel datapath's maps, byte by byte."""

import pytest

from drld.capture import kernel_layout as layout
from drld.model import NS_PER_S, Enforcement
from drld.spec import OnFailure

from ..factories import limit_spec


@pytest.mark.parametrize(
    ("rate", "depth", "span"),
    [
        (1_250_000, 1500, 858_994_659_200),
        (-1_250_000, 1500, 858_994_659_200),
        (7, 1, 153_391_689_285_714_286),
        (0, 1500, 2**63 - 1),
        (50_000_000_000, 4 * 10**9, 101_474_837),
    ],
)
def test_a_record_says_how_much_time_counts(rate: int, depth: int, span: int) -> None:
    """The span fills the bucket from a debt of 2**30 bytes."""
    mode, packed_rate, packed_depth, packed_span = layout.RECORD.unpack(
        layout.record(Enforcement(fill_rate=rate, depth=depth))
    )
    assert (packed_rate, packed_depth) == (abs(rate), depth * NS_PER_S)
    assert packed_span == span
    assert mode == layout.BUCKET | (layout.DRAIN if rate < 0 else 0)
    # What is multiplied fits into 63 bits, even if a full bucket is there already.
    worth = packed_rate * (packed_span if rate else 0)
    assert packed_depth + worth < 2**63
    assert not rate or 0 <= worth - packed_depth - 2**30 * NS_PER_S < packed_rate


@pytest.mark.parametrize(
    ("rate", "depth", "reserve", "span", "per_ns"),
    [
        (125_000, 15_000, 60_000, 120_000_000, 500_000),
        (64, 15_000, 75_000, 234_375_000_000, 320),
        (1, 4 * 10**9, 4 * 10**9, 2**61, 1),
        (10**9, 1, 4 * 10**9, 1, 4 * 10**18),
        (10**9, 1, 10**10, 1, 2**62),
        (50_000_000_000, 4 * 10**9, 4 * 10**9, 80_000_000, 50_000_000_000),
        (0, 15_000, 60_000, 0, 0),
    ],
)
def test_a_flow_record_has_the_tokens_to_leave_for_each_nanosecond(
    rate: int, depth: int, reserve: int, span: int, per_ns: int
) -> None:
    """The reserve for the whole span, in 63 bits."""
    record = layout.flow_record(
        Enforcement(depth=10**6, flow_rate=rate, flow_depth=depth, reserve=reserve)
    )
    assert layout.FLOW_RECORD.unpack(record)[1:] == (span, per_ns)


def test_without_a_bucket_no_flow_is_policed() -> None:
    record = layout.flow_record(Enforcement(flow_rate=1, flow_depth=1, reserve=1))
    assert not any(record)


def test_the_probability_is_scaled_to_the_draw() -> None:
    for probability, threshold in ((0.0, 0), (0.5, 2**31), (1.0, 2**32)):
        packed = layout.record(Enforcement(drop_probability=probability))
        assert layout.RECORD.unpack(packed)[0] == threshold << 8


@pytest.mark.parametrize(
    ("on_failure", "mode"),
    [(OnFailure.OPEN, 0), (OnFailure.CLOSED, 2**32 << 8), (OnFailure.SHARE, layout.BUCKET)],
)
def test_the_fallback_follows_on_failure(on_failure: OnFailure, mode: int) -> None:
    share = Enforcement(fill_rate=1, depth=1)
    packed = layout.fallback(limit_spec(on_failure=on_failure), share)
    assert layout.RECORD.unpack(packed)[0] == mode


def test_a_flow_at_two_places_has_the_sum_of_both() -> None:
    assert layout.by_flow([3, 0, 5], [9, 9, 9], [1, 2, 3]) == {3: 8, 5: 6}
    assert layout.by_flow([3, 0, 5, 3], [9, 9, 9, 4], [1, 2, 3, 4]) == {3: 8, 5: 6}


def test_no_record_is_deeper_than_the_arithmetic_of_the_programs_holds() -> None:
    deep = Enforcement(fill_rate=1250, depth=15 * 10**12, credit=15 * 10**12, credit_id=1)
    most = Enforcement(fill_rate=1250, depth=4 * 10**9, credit=4 * 10**9, credit_id=1)
    assert layout.command(0, deep, 0) == layout.command(0, most, 0)
    limit = limit_spec()
    assert layout.limit_state(limit, deep, deep, 1, 0) == layout.limit_state(
        limit, most, most, 1, 0
    )
