"""Weights of limiters, with flows that the datapath polices."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.sim.run import simulate
from testbed.studies.any_traffic_measures import Seen, least_share, most_share

from ..testbed_factories import experiment


def weighted(**weights: float) -> Seen:
    """TCP at two limiters, and UDP at the second that ignores drops."""
    made = experiment(
        limiters=["l1", "l2"],
        flows=[
            {"limiter": "l1", "count": 3, "rtt": "40ms"},
            {"limiter": "l2", "count": 2, "rtt": "40ms"},
        ],
        udp=[{"limiter": "l2", "rate": "6mbit", "rtt": "40ms"}],
        limit={"rate": "9mbit", "burst": "75kB", "weights": weights},
        gossip={"rtt": "40ms"},
        seconds=24,
        warmup="8s",
    )
    record: dict[str, Any] = simulate(made, "fair")
    return Seen(record, made)


@pytest.mark.parametrize("weights", [{"l1": 2.0}, {"l2": 2.0}, {"l1": 0.5, "l2": 1.5}])
def test_a_flow_gets_its_weight_within_three_percent(weights: dict[str, float]) -> None:
    seen = weighted(**weights)
    assert least_share().of(seen) >= 0.97
    assert most_share().of(seen) <= 1.03
    assert most_share("u1").of(seen) <= 1.03


def test_without_weights_the_same_shares_are_far_off() -> None:
    plain, judged = weighted(), weighted(l1=2.0)
    plain.experiment = judged.experiment
    assert least_share().of(plain) < 0.8
    assert most_share("u1").of(plain) > 1.2
