"""TCP on paths of few milliseconds, alone at a limiter.

After a burst that fills the bucket, such flows lose so many packets that all wait for their timers,
for 200 ms or more. A limiter that forgets them meanwhile has a small share when they come back.
"""

from __future__ import annotations

from testbed.sim.run import simulate
from testbed.studies.any_traffic_measures import Seen

from ..testbed_factories import experiment


def test_flows_that_wait_for_their_timers_together_keep_their_share() -> None:
    """With a memory of a tenth of a second (`RECENT_NS`), they got 0.4 of it."""
    fleet = experiment(
        allocators=["fair"], seconds=16, warmup="6s", seed=119, limiters=["l1..l3"],
        limit={"rate": "10.9mbit", "burst": "510kB"},
        gossip={"fabric": "mesh", "interval": "19ms", "rtt": "1ms", "loss": 0.05},
        flows=[
            {"limiter": "l1", "count": 2, "rtt": "4ms", "congestion": "reno", "start": "4s"},
            {"limiter": "l2", "count": 5, "rtt": "106ms", "congestion": "bbr"},
        ],
        udp=[
            {"limiter": "l2", "rate": "11.2mbit", "rtt": "119ms", "start": "6.6s", "on": "1860ms",
             "off": "850ms"},
            {"limiter": "l3", "rate": "650kbit", "size": "200B", "rtt": "71ms", "start": "9s",
             "on": "2590ms", "off": "2840ms"},
        ],
    )  # fmt: skip
    seen = Seen(simulate(fleet, "fair"), fleet)
    assert min(seen.rates[flow] / seen.deserved[flow] for flow in seen.ids("f1")) >= 0.9
