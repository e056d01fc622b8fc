"""The record of a run, from its observations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed.believed import BelievedTotal
from testbed.errors import MeasurementError
from testbed.record import Observation, record
from testbed.topology import plan
from tests.testbed_factories import experiment, observation

RATES = {"f1": 375_000, "f2": 875_000}


def recorded(allocator: str = "fps", **changes: Any) -> dict[str, Any]:
    small = experiment()
    layout = plan(small, allocator, 1)
    seen = replace(observation(small, layout, RATES), **changes)
    return record(small, allocator, 2, layout, seen)


def seen_by_default() -> Observation:
    small = experiment()
    return observation(small, plan(small, "fps", 1), RATES)


def test_constant_rates_have_their_figures() -> None:
    run = recorded()
    assert (run["allocator"], run["repetition"], run["datapath"]) == ("fps", 2, "nfqueue")
    assert (run["seconds"], run["warmup_s"]) == (4.0, 1.0)
    assert run["aggregate_bps"] == pytest.approx(10e6)
    assert run["share"] == pytest.approx({"l1": 0.3, "l2": 0.7})
    assert run["share_of"] == "forwarded"
    assert run["jain"] == pytest.approx((300 + 350 + 350) ** 2 / 3 / (300**2 + 2 * 350**2), 1e-3)
    assert run["windows_within_limit"] == 1.0
    assert [(window["seconds"], len(window["bps"])) for window in run["windows"]] == [
        (1.0, 3),
        (0.05, 60),
    ]
    assert run["windows"][1]["bps"] == pytest.approx([10e6] * 60, rel=1e-4)
    assert run["gossip"] == {
        "sent": 80, "received": 79, "lost": 1, "bytes_per_limiter_per_s": pytest.approx(960),
    }  # fmt: skip


def test_the_series_has_forwarded_and_arrived_rates_and_the_local_limit() -> None:
    rows = recorded()["series"]["l1"]
    assert len(rows) == 80
    assert rows[0] == (0.0, pytest.approx(3e6, abs=200), pytest.approx(6e6, abs=200), 1e6)
    assert rows[40][0] == 2.0
    assert [row[3] for row in rows] == [1_000_000] * 40 + [None] * 40


def test_flows_are_reported_one_by_one() -> None:
    flows = recorded()["flows"]
    assert [(flow["id"], flow["limiter"]) for flow in flows] == [
        ("f1.1", "l1"),
        ("f2.1", "l2"),
        ("f2.2", "l2"),
    ]
    assert flows[0]["goodput_bps"] == pytest.approx(3e6 * 1448 / 1500, rel=1e-3)
    assert len(flows[0]["goodput_series_bps"]) == 20


def test_thousands_of_flows_are_reported_as_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.record.MOST_FLOW_SERIES", 2)
    run = recorded()
    assert len(run["flows"]) == 3
    assert all("goodput_series_bps" not in flow for flow in run["flows"])
    assert all("goodput_bps" in flow for flow in run["flows"])


def test_costs_and_beliefs_of_daemons_are_reported_if_known() -> None:
    assert "daemons" not in recorded()
    costs = {"l1": {"core_share": 0.02, "resident_bytes": 5e7, "peak_bytes": 6e7}}
    limiters = replace(seen_by_default().limiters, costs=costs)
    believed = BelievedTotal([0.0, 1.0, 2.0], [0.9, 0.3, 0.4])
    run = recorded(limiters=limiters, believed=believed)
    assert run["daemons"] == costs
    # The first second warms up.
    assert run["gossip"]["believed_total"]["rms_error"] == pytest.approx(0.125**0.5)
    early = recorded(believed=BelievedTotal([0.0], [0.9]))
    assert "believed_total" not in early["gossip"]


def test_a_central_run_is_split_by_goodput() -> None:
    run = recorded("ctb")
    assert list(run["series"]) == ["ctb"]
    assert run["share"] == pytest.approx({"l1": 0.3, "l2": 0.7}, rel=1e-3)
    assert run["share_of"] == "goodput"
    assert run["aggregate_bps"] == pytest.approx(10e6)


def joining(**changes: Any) -> dict[str, Any]:
    small = experiment(
        flows=[
            {"limiter": "l1", "count": 1, "rtt": "40ms"},
            {"limiter": "l2", "count": 1, "rtt": "40ms", "start": "1.5s"},
        ],
        **changes,
    )
    layout = plan(small, "fps", 1)
    return record(
        small, "fps", 1, layout, observation(small, layout, dict.fromkeys(RATES, 625_000))
    )


def test_a_joining_flow_is_reported_with_its_time_to_its_share() -> None:
    (event,) = joining()["events"]
    assert (event["kind"], event["what"], event["until_s"]) == ("join", ["f2.1"], 4.0)
    assert event["at_s"] == pytest.approx(1.5, abs=0.02)
    # Both flows have constant rates from the start, 10 Mbit/s together.
    assert event["highest_1s_bps"] == pytest.approx(10e6, rel=1e-3)
    (flow,) = event["flows"]
    assert (flow["id"], flow["before_bps"], flow["t80_s"]) == ("f2.1", 0, 0)
    assert flow["fair_bps"] == pytest.approx(5e6 * 1448 / 1500)


def test_a_run_without_events_has_no_times() -> None:
    assert recorded()["events"] == []


def starving_one() -> list[dict[str, Any]]:
    """The bytes received if one of the two flows at `l2` gets the rate of both."""
    first, second, third = seen_by_default().received
    return [first, {**second, "bytes": [2 * step for step in second["bytes"]]}, third]


def test_a_flow_without_a_byte_counts_as_zero() -> None:
    *others, last = starving_one()
    run = recorded(received=[*others, {**last, "bytes": [0] * 20}])
    assert run["flows"][2]["goodput_bps"] == 0
    assert run["jain"] == pytest.approx(10**2 / 3 / (3**2 + 7**2), rel=1e-3)


def test_a_flow_that_never_connected_counts_as_zero() -> None:
    run = recorded(received=starving_one()[:-1])
    assert run["flows"][2]["goodput_bps"] == 0
    assert run["jain"] == pytest.approx(10**2 / 3 / (3**2 + 7**2), rel=1e-3)


def test_a_broken_flow_fails_the_run() -> None:
    seen = seen_by_default()
    seen.sent["f1"][0]["error"] = "Connection reset by peer"
    with pytest.raises(MeasurementError, match=r"flow f1\.1: Connection reset"):
        recorded(sent=seen.sent)


def test_a_flow_that_was_never_opened_fails_the_run() -> None:
    seen = seen_by_default()
    seen.sent["f1"][0]["syn_s"] = None
    with pytest.raises(MeasurementError, match=r"flow f1\.1 was never opened"):
        recorded(sent=seen.sent)


def test_bytes_from_nowhere_fail_the_run() -> None:
    stranger = {"source": "10.1.9.2", "port": 1, "bytes": [0] * 20}
    with pytest.raises(MeasurementError, match="connections from unknown sources"):
        recorded(received=[*seen_by_default().received, stranger])


def test_counters_that_contradict_the_goodput_fail_the_run() -> None:
    seen = seen_by_default()
    doubled = {
        key: [2 * value for value in values] if key.startswith("forwarded") else values
        for key, values in seen.counters.items()
    }
    with pytest.raises(MeasurementError, match="do not fit"):
        recorded(counters=doubled)


def test_samples_that_end_early_fail_the_run() -> None:
    seen = seen_by_default()
    with pytest.raises(MeasurementError, match="no sample"):
        recorded(times_s=seen.times_s[:60])
