"""The tokens that the largest flow of a limiter leaves to others (drld.allocators.fair_flows)."""

from __future__ import annotations

import statistics

from testbed.sim.run import simulate
from testbed.studies.any_traffic_measures import AGGREGATE, Seen

from ..testbed_factories import experiment


def test_a_trickle_costs_a_large_flow_little_of_the_limit() -> None:
    """Alone, the flow has 0.97 of the limit; with half of the bucket in reserve, it had 0.81."""
    fleet = experiment(
        allocators=["fair"], seconds=24, warmup="6s", limiters=["l1", "l2"],
        limit={"rate": "20mbit", "burst": "500kB"},
        flows=[{"limiter": "l1", "count": 1, "rtt": "0ms", "congestion": "cubic"}],
        udp=[{"limiter": "l1", "period": "130ms", "size": "100B", "rtt": "10ms"}],
    )  # fmt: skip
    assert AGGREGATE.of(Seen(simulate(fleet, "fair"), fleet)) >= 0.9


def test_flows_that_begin_beside_a_flood_find_tokens() -> None:
    """They have 2.1 Mbit/s. If the reserve did not depend on the flood, they would have 0.6."""
    fleet = experiment(
        allocators=["fair"], seconds=20, warmup="4s", limiters=["l1", "l2"],
        limit={"rate": "10mbit", "burst": "auto"},
        flows=[
            {"limiter": "l1", "count": 1, "rtt": "80ms", "congestion": "cubic", "start": "0ms",
             "end": "500ms", "period": "2s"},
            {"limiter": "l2", "count": 2, "rtt": "40ms", "congestion": "reno"},
        ],
        udp=[{"limiter": "l1", "rate": "20mbit", "rtt": "10ms"}],
    )  # fmt: skip
    seen = Seen(simulate(fleet, "fair"), fleet)
    short = [seen.rates[flow] for flow in seen.ids("f1") if flow in seen.rates]
    assert statistics.mean(short) >= 1.8e6
