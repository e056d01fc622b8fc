"""`scripts/bench hop`: rows of its table."""

from __future__ import annotations

import pytest

from testbed.bench.hop.client import quantile
from testbed.bench.hop.measure import DIRECT, HAPROXY, STAMPS, costs


def test_costs_are_compared_within_rounds() -> None:
    times = {DIRECT: [0.0, 0.0], HAPROXY: [2.0, 6.0], STAMPS: [8.0, 12.0]}
    rows = {(row.case, row.metric): row for row in costs("single", times, 100_000.0)}
    assert rows[HAPROXY, "of drld's processor time"].values == [0.25, 0.5]
    rate = rows[STAMPS, "messages a second and core"]
    assert rate.values == pytest.approx([125_000, 83_333], abs=1)
    assert rate.at_least == 100_000
    assert rows[HAPROXY, "messages a second and core"].at_least is None
    # Nothing is between publishers and broker.
    assert not any(case == DIRECT for case, _ in rows)


def test_a_quantile_is_in_microseconds() -> None:
    assert quantile([number * 1000 for number in range(100)], 0.99) == 99
