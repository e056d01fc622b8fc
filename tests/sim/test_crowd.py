"""A crowd: far more flows at a limiter than its sample holds."""

from __future__ import annotations

from unittest import mock

from drld.allocators import fair_flows
from testbed.result import jain
from testbed.sim.run import simulate

from ..testbed_factories import experiment


def fairness() -> float:
    """Jain's index of 400 sources in step, which send three times the limit."""
    record = simulate(
        experiment(
            limiters=["l1", "l2"],
            flows=[],
            limit={"rate": "6mbit", "burst": "45kB"},
            udp=[{"limiter": "l1", "count": 400, "period": "267ms", "rtt": "40ms"}],
            seconds=16,
            warmup="4s",
        ),
        "fair",
    )
    return jain([source["forwarded_bps"] for source in record["udp"]])


def test_all_flows_of_a_crowd_find_tokens() -> None:
    assert fairness() > 0.9


def test_without_random_drop_the_order_of_flows_decides() -> None:
    """Lock-out: a bucket refuses the same sources time after time."""
    with mock.patch.object(fair_flows, "CROWD_PASS", 1e9):
        assert fairness() < 0.6
