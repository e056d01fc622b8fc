"""UDP sources of the simulator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from testbed.sim.run import Simulation, simulate

from ..testbed_factories import experiment


def run(allocator: str = "ctb", **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"limiters": ["l1", "l2"], "flows": [], "seconds": 6, **changes}
    return simulate(experiment(**given), allocator)


def sources(record: dict[str, Any]) -> dict[str, float]:
    return {source["id"]: source["forwarded_bps"] for source in record["udp"]}


def test_traffic_below_the_limit_passes_whole() -> None:
    record = run(udp=[{"limiter": "l1", "rate": "4mbit", "rtt": "40ms"}])
    assert sources(record) == {"u1.1": pytest.approx(4e6, rel=0.005)}
    assert record["aggregate_bps"] == pytest.approx(4e6, rel=0.005)
    assert record["udp"][0]["goodput_bps"] == pytest.approx(4e6 * 1472 / 1500, rel=0.005)
    assert record["udp"][0]["sent"] == pytest.approx(4e6 * 6 / 12_000, abs=1)


def test_traffic_above_the_limit_has_the_limits_rate() -> None:
    record = run("static", udp=[{"limiter": "l1", "rate": "30mbit"}])
    assert sources(record)["u1.1"] == pytest.approx(5e6, rel=0.05)


def test_packets_that_get_lost_on_the_way_do_not_arrive() -> None:
    record = run(udp=[{"limiter": "l1", "rate": "4mbit", "loss": 0.2}])
    assert sources(record)["u1.1"] == pytest.approx(3.2e6, rel=0.05)


def test_a_source_sends_from_its_start_to_its_end_and_while_it_is_on() -> None:
    timed = {"limiter": "l1", "rate": "4mbit", "start": "2s", "end": "4s"}
    pulsed = {"limiter": "l2", "rate": "4mbit", "on": "200ms", "off": "800ms"}
    first, second = run(udp=[timed, pulsed])["udp"]
    active = [index for index, rate in enumerate(first["goodput_series_bps"]) if rate]
    assert (min(active), max(active)) == (10, 19)
    assert second["forwarded_bps"] == pytest.approx(0.8e6, rel=0.05)


def test_bursts_are_back_to_back() -> None:
    """A bucket of 15,000 bytes passes ten of twelve packets, and those that a millisecond adds."""
    record = run(
        udp=[{"limiter": "l1", "burst": 12, "period": "1150ms"}],
        limit={"rate": "1mbit", "burst": "15kB"},
    )
    assert record["udp"][0]["sent"] == 12 * 6
    steps = [round(rate * 0.2 / 8 / 1472) for rate in record["udp"][0]["goodput_series_bps"]]
    assert [count for count in steps if count] == [10] * 6


def test_a_new_port_for_each_packet_is_a_new_flow_for_each() -> None:
    flows = [{"limiter": "l1", "count": 2, "rtt": "40ms"}]

    def tcp(ports: str) -> float:
        source = {"limiter": "l2", "rate": "20mbit", "ports": ports}
        record = run("fps", flows=flows, udp=[source], seconds=12, warmup="4s")
        return float(record["bulk_goodput_bps"])

    # As one flow it counts as one of three. As many it claims what it would in a bucket: all.
    assert tcp("one") > 2 * tcp("each-packet")


def test_bytes_that_receivers_hold_back_at_the_end_are_counted() -> None:
    """Some of many flows that lose much have losses that are not repaired before the end."""
    flows = [{"limiter": "l1", "count": 60, "rtt": "40ms"}]
    limit = {"rate": "2mbit", "burst": "75kB"}
    simulation = Simulation(experiment(flows=flows, limit=limit), "ctb", 1)
    simulation.carry_out()
    seen = simulation.observation()
    forwarded = sum(host.forwarded for host in simulation.fleet.hosts)
    delivered = sum(sum(item["bytes"]) for item in seen.received) // 1448 * 1500
    assert seen.held_bytes > 10 * 1500
    # What else was forwarded are handshakes, resets, and segments that came twice.
    assert delivered + seen.held_bytes == pytest.approx(forwarded, abs=10_000)


def test_the_same_seed_gives_the_same_record_to_the_byte() -> None:
    udp = [{"limiter": "l1..l2", "rate": "2mbit", "count": 3}]
    assert json.dumps(run(udp=udp)) == json.dumps(run(udp=udp))


def test_a_run_without_udp_sources_is_unchanged_by_the_feature() -> None:
    quiet = {"limiter": "l1", "period": "1h", "start": "1h"}
    flows = [{"limiter": "l1", "count": 2, "rtt": "40ms"}]
    alone, beside = run(flows=flows), run(flows=flows, udp=[quiet])
    assert alone["flows"] == beside["flows"]
    assert "udp" not in alone


def test_a_source_that_changes_its_port_is_one_flow_where_flows_are_sources() -> None:
    """The source's max-min share is a third of the limit, like that of each of two TCP flows."""
    flows = [{"limiter": name, "count": 1, "rtt": "40ms"} for name in ("l1", "l2")]
    source = {"limiter": "l2", "rate": "8mbit", "ports": "each-packet"}
    given = {"flows": flows, "udp": [source], "seconds": 14, "warmup": "6s"}

    def udp(**limit: str) -> float:
        rate = {"rate": "10mbit", "burst": "75kB", **limit}
        return sources(run("fair", limit=rate, **given))["u1.1"]

    assert udp(flow="source") == pytest.approx(10e6 / 3, rel=0.1)
    assert udp() > 0.7 * 8e6
