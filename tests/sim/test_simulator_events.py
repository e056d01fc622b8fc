"""Events in the middle of a simulated run."""

from __future__ import annotations

from typing import Any

import pytest

from drld.errors import ConfigError
from testbed.sim.run import simulate

from ..testbed_factories import experiment

FLOWS = [
    {"limiter": "l1", "count": 1, "rtt": "40ms"},
    {"limiter": "l2", "count": 3, "rtt": "40ms"},
]


def simulated(events: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    given = {"seconds": 14, "allocators": ["fps"], "flows": FLOWS, **changes}
    return simulate(experiment(events=events, **given), "fps")


def mean_bps(run: dict[str, Any], limiter: str, begin_s: float, end_s: float) -> float:
    """The rate that a limiter forwarded, bits/s."""
    rates: list[float] = [row[1] for row in run["series"][limiter] if begin_s <= row[0] < end_s]
    return sum(rates) / len(rates)


def test_the_limit_changes_on_all_limiters() -> None:
    run = simulated([{"at": "4s", "limit": "4mbit"}, {"at": "9s", "limit": "10mbit"}])
    cut, raised = run["events"]
    total = sum(mean_bps(run, limiter, 5, 9) for limiter in ("l1", "l2"))
    assert total == pytest.approx(4e6, rel=0.05)
    assert (cut["limit_bps"], cut["flows"]) == (4e6, [])
    # The next ticks of all limiters.
    assert cut["in_force_s"] <= 0.06
    assert len(raised["flows"]) == 4
    assert sum(mean_bps(run, limiter, 11, 14) for limiter in ("l1", "l2")) >= 0.85 * 10e6


def test_a_dead_limiter_keeps_its_share_and_comes_back() -> None:
    run = simulated(
        [{"at": "4s", "kill": "l2"}, {"at": "9s", "start": "l2"}], gossip={"fabric": "mesh"}
    )
    death, back = run["events"]
    # On a mesh of 50 ms its share leaves after 0.85 s; its datapath waits for 1 s.
    assert 0.8 <= death["in_force_s"] <= 1.1
    assert mean_bps(run, "l2", 5.5, 9) == pytest.approx(5e6, rel=0.05)
    # One flow under a bucket leaves some of it.
    assert 0.8 * 5e6 <= mean_bps(run, "l1", 6, 9) <= 1.05 * 5e6
    assert [flow["limiter"] for flow in death["flows"]] == ["l1"]
    assert back["in_force_s"] <= 1.0
    assert mean_bps(run, "l2", 11, 14) == pytest.approx(7.5e6, rel=0.1)


@pytest.mark.parametrize("fabric", ["mesh", "tree", "pushsum"])
def test_the_flows_of_a_limiter_whose_last_peer_has_died_share_its_static_share(
    fabric: str,
) -> None:
    """UDP at 0.9 of the static share leaves the other three flows a quarter each."""
    flood = {"limiter": "l1", "rate": "4500kbit"}
    three = {"limiter": "l1", "count": 3, "rtt": "40ms"}
    table = experiment(
        seconds=20,
        warmup="8s",
        allocators=["fair"],
        limiters=["l1", "l2"],
        flows=[three],
        udp=[flood],
        limit={"rate": "10mbit", "burst": "auto"},
        gossip={"fabric": fabric},
        events=[{"at": "1s", "kill": "l2"}],
    )
    run = simulate(table, "fair")
    assert mean_bps(run, "l1", 8, 20) == pytest.approx(5e6, rel=0.05)
    assert run["udp"][0]["forwarded_bps"] == pytest.approx(1.25e6, rel=0.1)


def test_a_dead_limiter_begins_its_new_life_with_the_limit_of_the_day() -> None:
    events = [
        {"at": "3s", "kill": "l2"},
        {"at": "6s", "limit": "4mbit"},
        {"at": "8s", "start": "l2"},
    ]
    run = simulated(events)
    assert mean_bps(run, "l1", 11, 14) == pytest.approx(1e6, rel=0.15)
    assert mean_bps(run, "l2", 11, 14) == pytest.approx(3e6, rel=0.1)


def test_only_the_fallback_of_the_kernel_datapath_is_simulated() -> None:
    limit = {"rate": "10mbit", "burst": "75kB", "on_failure": "open"}
    with pytest.raises(ConfigError, match="on_failure"):
        simulated([], limit=limit)


def test_traffic_of_limited_hosts_own_is_refused_by_the_simulator() -> None:
    flows = [{"limiter": "l1", "count": 1, "rtt": "0s", "egress": True}]
    with pytest.raises(ConfigError, match=r"flows\.egress: only the testbed has it"):
        simulated([], flows=flows)
