"""The bound on bytes of `fair` (docs/conservative-rule.md, "A bound on bytes")."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ..factories import MS
from ..fleets.events import slow
from .byte_bound import TRAFFIC, found_in

ROUNDED = 1 + 1e-6
"""Values are told as float32."""


@pytest.mark.parametrize("fabric", ["mesh", "tree"])
@given(
    size=st.sampled_from([2, 3, 5, 8]),
    traffic=st.sampled_from(sorted(TRAFFIC)),
    seed=st.integers(0, 999),
    margin=st.sampled_from([0.0, 0.2]),
    path=st.sampled_from([0.02, 0.1, 0.2]),
    interval_ms=st.sampled_from([20, 50, 50, 200]),
    reckless=st.booleans(),
)
@settings(slow, max_examples=12)
def test_no_window_exceeds_the_bound(
    fabric: str,
    *,
    size: int,
    traffic: str,
    seed: int,
    margin: float,
    path: float,
    interval_ms: int,
    reckless: bool,
) -> None:
    """Nor if limiters take at once all that they believe to have; and strict shares sum to 1."""
    found = found_in(
        fabric,
        size,
        traffic,
        seed,
        margin=margin,
        path=path,
        interval_ns=interval_ms * MS,
        reckless=reckless,
    )
    assert found.bytes <= 1
    assert found.shares <= ROUNDED


@pytest.mark.parametrize("fabric", ["mesh", "tree"])
@pytest.mark.parametrize("traffic", ["pulses", "together"])
def test_without_the_account_limiters_exceed_the_bound(fabric: str, traffic: str) -> None:
    bounded, unbounded = (
        found_in(fabric, 7, traffic, 1, margin=0.0, reckless=True, account=account)
        for account in (True, False)
    )
    assert bounded.bytes <= 1 < unbounded.bytes
