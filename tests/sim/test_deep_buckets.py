"""A limit with a burst of 0.4 s beside traffic that comes and goes."""

from __future__ import annotations

from testbed.sim.run import simulate
from testbed.studies.any_traffic_measures import Seen

from ..testbed_factories import experiment


def test_a_deep_bucket_leaves_tokens_for_the_flows_that_begin_after_a_pause() -> None:
    """When the bucket's depth took the whole account, the fill rate was zero, and flows had 0.4 of
    what they have under one bucket; they have 0.76 now."""
    fleet = experiment(
        allocators=["ctb", "fair"], seconds=34, warmup="13.6s", seed=70, limiters=["l1", "l2"],
        limit={"rate": "18.1mbit", "burst": "900kB"},
        gossip={"fabric": "mesh", "interval": "61ms", "rtt": "14ms"},
        flows=[{"limiter": "l2", "count": 3, "rtt": "33ms", "congestion": "cubic", "start": "0ms",
                "end": "1.94s", "period": "3.46s"}],
        udp=[{"limiter": "l1", "rate": "5.9mbit", "size": "200B", "rtt": "117ms", "start": "6s",
              "on": "1381ms", "off": "1009ms"}],
    )  # fmt: skip
    one, fair = (
        sum(seen.rates[flow] for flow in seen.ids("f1"))
        for seen in (Seen(simulate(fleet, name), fleet) for name in ("ctb", "fair"))
    )
    assert fair >= 0.7 * one
