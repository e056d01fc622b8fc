"""The record of a run, from the fates of its web requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed.errors import DisturbedError, MeasurementError
from testbed.plot_result import plot_result
from testbed.record import record
from testbed.topology import plan
from testbed.webrecord import Fetch, SiteReport, class_rates, site_report, web_record
from testbed.workload import Request
from tests.testbed_factories import experiment, observation, web

MS = 1_000_000
S = 1_000_000_000

PLANNED = [Request(100 * MS, 1000), Request(200 * MS, 2000)]


def told(*starts_ms: float, error: str | None = None) -> dict[str, Any]:
    fetches = [
        [round(start * MS), round((start + 50) * MS), request.size, request.size, error]
        for start, request in zip(starts_ms, PLANNED, strict=False)
    ]
    return {"name": "w1", "steps": [3000, 0, 0], "fetches": fetches}


def read(reported: dict[str, Any], open_loop: bool = True) -> SiteReport:
    return site_report("w1", "l1", PLANNED if open_loop else [], reported, open_loop=open_loop)


def test_requests_that_start_as_planned_count() -> None:
    report = read(told(100.5, 249))
    assert report.late_ns == 49 * MS
    assert [fetch.size for fetch in report.fetches] == [1000, 2000]


@pytest.mark.parametrize("starts_ms", [(100, 251), (40, 200)])
def test_a_request_at_another_time_than_planned_fails_the_run(
    starts_ms: tuple[float, float],
) -> None:
    with pytest.raises(DisturbedError, match=r"web w1: a request started .* ms late"):
        read(told(*starts_ms))


def test_a_missing_request_fails_the_run() -> None:
    with pytest.raises(MeasurementError, match="1 requests were started, not the 2 planned"):
        read(told(100))


def test_requests_in_another_order_fail_the_run() -> None:
    reported = told(100, 200)
    reported["fetches"].reverse()
    with pytest.raises(MeasurementError, match="web w1"):
        read(reported)


def test_a_broken_request_fails_the_run() -> None:
    with pytest.raises(MeasurementError, match="web w1: request for 1000 bytes: reset by peer"):
        read(told(100, 200, error="reset by peer"))


def test_a_closed_loop_has_no_plan_to_keep() -> None:
    assert read(told(7000, 9000), open_loop=False).late_ns == 0


def fetch(size: int, took_ms: float | None, start_ms: float = 1000) -> Fetch:
    start = round(start_ms * MS)
    if took_ms is None:
        return Fetch(start, None, size, size // 2)
    return Fetch(start, start + round(took_ms * MS), size, size)


def test_rates_are_harmonic_means_by_size() -> None:
    classes = class_rates(
        [
            fetch(4999, 100),
            fetch(1000, 100),
            fetch(5000, 100),
            fetch(49_999, None),
            fetch(500_000, 4000),
            fetch(9_000_000, 9000),
            fetch(10, 1, start_ms=999),
        ],
        begin_ns=S,
    )
    assert [item["from"] for item in classes] == [0, 5_000, 50_000, 500_000]
    assert [item["finished"] for item in classes] == [2, 1, 0, 2]
    assert [item["unfinished"] for item in classes] == [0, 1, 0, 0]
    assert classes[0]["rate_bps"] == pytest.approx(2 / (1 / (4999 * 80) + 1 / 80_000))
    assert classes[1]["rate_bps"] == pytest.approx(400_000)
    assert classes[2]["rate_bps"] is None
    assert classes[3]["rate_bps"] == pytest.approx(2 / (1 / 1e6 + 1 / 8e6))


def site(name: str, steps: list[int], *fetches: Fetch) -> SiteReport:
    return SiteReport(name, "l2", fetches, tuple(steps), 3 * MS)


def test_a_run_s_record_counts_its_requests() -> None:
    found = web_record(
        [
            site("w1", [1000, 2000, 3000], fetch(4000, 100, 300), fetch(3000, None, 500)),
            site("w2", [0, 0, 500], fetch(1000, None, 400)),
        ],
        begin_s=0.2, end_s=0.6, step_s=0.2,
    )  # fmt: skip
    assert found["goodput_bps"] == pytest.approx(5500 * 8 / 0.4)
    assert found["worst_late_ms"] == 3
    assert [item["goodput_bps"] for item in found["sites"]] == pytest.approx([100_000, 10_000])
    assert found["sites"][0]["goodput_series_bps"] == pytest.approx([40_000, 80_000, 120_000])
    assert found["sites"][0]["requests"] == 2
    assert found["requests"] == [
        [0, 0.3, 4000, 4000, 0.4],
        [1, 0.4, 1000, 500, None],
        [0, 0.5, 3000, 1500, None],
    ]
    assert found["requests_left_out"] == 0


def test_the_list_of_requests_is_bounded_but_the_figures_are_of_all() -> None:
    found = web_record([site("w1", [1], *[fetch(1000, 100)] * 20_001)], 0.0, 0.2, 0.2)
    assert len(found["requests"]) == 20_000
    assert found["requests_left_out"] == 1
    assert found["sites"][0]["requests"] == found["classes"][0]["finished"] == 20_001


RATES = {"f1": 375_000, "f2": 375_000, "w1": 500_000}


def recorded(allocator: str, **changes: Any) -> dict[str, Any]:
    small = experiment(web=[web(limiter="l2")], **changes)
    layout = plan(small, allocator, 1)
    seen = observation(small, layout, RATES)
    web_bytes = round(RATES["w1"] * 1448 / 1500 * 0.2)
    report = replace(site("w1", [web_bytes] * 20, fetch(1000, 100)), limiter="l2")
    return record(small, allocator, 1, layout, replace(seen, web=(report,)))


@pytest.mark.parametrize("allocator", ["ctb", "fps"])
def test_web_traffic_is_part_of_a_limiter_s_share(allocator: str) -> None:
    run = recorded(allocator)
    assert run["share"] == pytest.approx({"l1": 0.3, "l2": 0.7}, rel=1e-3)
    assert run["bulk_goodput_bps"] == pytest.approx(6e6 * 1448 / 1500, rel=1e-3)
    assert run["web"]["goodput_bps"] == pytest.approx(4e6 * 1448 / 1500, rel=1e-3)
    assert run["jain"] == pytest.approx((1 + 0.5 + 0.5) ** 2 / 3 / 1.5, rel=1e-3)


def test_goodput_that_web_traffic_does_not_explain_fails_the_run() -> None:
    small = experiment(web=[web(limiter="l2")])
    layout = plan(small, "fps", 1)
    with pytest.raises(MeasurementError, match="do not fit"):
        record(small, "fps", 1, layout, observation(small, layout, RATES))


@pytest.mark.parametrize("allocator", ["ctb", "fps"])
def test_a_run_of_web_traffic_alone_has_no_jain_and_can_be_drawn(
    allocator: str, tmp_path: Any
) -> None:
    run = recorded(allocator, flows=[])
    assert run["jain"] is None
    assert run["share"] == {"l2": 1.0}
    result = {
        "experiment": "small", "limiters": ["l2"], "groups": [], "limit_bps": 10e6, "runs": [run],
        "web": [{"name": "w1", "limiter": "l2"}],
    }  # fmt: skip
    (file,) = plot_result(result, tmp_path)
    assert file.stat().st_size > 0
