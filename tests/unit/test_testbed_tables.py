"""The printed tables of a result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from testbed.harness import tables
from testbed.record import record
from testbed.topology import plan
from tests.testbed_factories import experiment, observation

SMALL = experiment(repeat=2)


def a_run(allocator: str, repetition: int) -> dict[str, Any]:
    layout = plan(SMALL, allocator, 1)
    seen = observation(SMALL, layout, {"f1": 375_000, "f2": 875_000})
    return record(SMALL, allocator, repetition, layout, seen)


def test_a_disturbance_is_named() -> None:
    layout = plan(SMALL, "ctb", 1)
    seen = observation(SMALL, layout, {"f1": 375_000, "f2": 875_000})
    disturbed = record(SMALL, "ctb", 1, layout, replace(seen, disturbances=("late",)))
    (remark,) = tables.disturbances_of({"runs": [disturbed, a_run("fps", 1)]})
    assert remark.startswith("The host was too busy for ctb, run 1")
    assert remark.endswith("late")


def test_the_table_has_a_row_for_each_allocator() -> None:
    runs = [a_run(allocator, repetition) for allocator, repetition in SMALL.runs]
    result = {"limiters": ["l1", "l2"], "limit_bps": 10e6, "runs": runs}
    header, ctb, fps = tables.table_of(result).splitlines()
    assert header.split() == [
        "allocator", "runs", "rate/limit", "l1", "l2", "Jain", "1s<=1.10", "gossip", "B/s",
    ]  # fmt: skip
    assert fps.split()[:4] == ["fps", "2", "1.000", "(1.000..1.000)"]
    assert ctb.split()[0] == "ctb"
    assert len(header) == len(ctb) == len(fps)


def an_event(kind: str, *times: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "limit_bps": 10e6,
        "highest_1s_bps": 9e6,
        "in_force_s": None,
        "flows": [{"t80_s": time, "lasting_s": time} for time in times],
        **changes,
    }


def test_the_table_of_events_has_a_row_for_each_kind_and_allocator() -> None:
    def run(allocator: str, *events: dict[str, Any]) -> dict[str, Any]:
        return {"allocator": allocator, "events": list(events)}

    runs = [
        run("ctb", an_event("join", 0.5)),
        run("fps", an_event("join", 0.5, 0.9, None), an_event("limit", highest_1s_bps=11.5e6)),
        run("fps", an_event("join", 0.7, in_force_s=0.25), an_event("limit")),
    ]
    header, *rows = tables.event_table_of({"runs": runs}).splitlines()
    assert header.split()[:4] == ["event", "allocator", "events", "flows"]
    assert [row.split()[:4] for row in rows] == [
        ["join", "ctb", "1", "1"],
        ["join", "fps", "2", "4"],
        ["limit", "ctb", "0", "0"],
        ["limit", "fps", "2", "0"],
    ]
    # What never came is longer than anything that did.
    assert rows[1].count("0.80 (0.50..never)") == 2
    assert "0.25 (0.25..0.25)" in rows[1]
    assert rows[1].endswith("0.90")
    assert rows[3].endswith("1.15")


def test_the_legend_explains_the_columns_that_there_are() -> None:
    run = a_run("fps", 1)
    quiet = tables.legend_of({"runs": [run]})
    assert "1s<=1.10" in quiet
    assert "t80" not in quiet
    assert "t80" in tables.legend_of({"runs": [{**run, "events": [an_event("join", 0.5)]}]})


def test_flows_that_come_and_go_have_no_index_of_fairness() -> None:
    run = {**a_run("fps", 1), "events": [an_event("join", 0.5)]}
    _, row = tables.table_of({"limiters": [], "limit_bps": 10e6, "runs": [run]}).splitlines()
    assert row.split()[:4] == ["fps", "1", "1.000", "-"]


def test_without_events_there_is_no_table_of_them() -> None:
    assert tables.event_table_of({"runs": [{"allocator": "fps", "events": []}]}) == ""
