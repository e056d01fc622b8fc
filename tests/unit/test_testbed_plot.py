"""Figures of a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from testbed.plot_response import response_figure
from testbed.plot_result import plot_result
from testbed.record import record
from testbed.topology import plan
from tests.testbed_factories import experiment, observation

PNG = b"\x89PNG\r\n\x1a\n"


def a_result(*allocators: str) -> dict[str, Any]:
    small = experiment()
    runs = []
    for allocator in allocators:
        layout = plan(small, allocator, 1)
        seen = observation(small, layout, {"f1": 375_000, "f2": 875_000})
        runs.append(record(small, allocator, 1, layout, seen))
    result = {
        "experiment": "small",
        "limiters": list(small.limiters),
        "groups": [
            {"name": group.name, "limiter": group.limiter, "flows": group.table.count}
            for group in small.groups
        ],
        "limit_bps": 10e6,
        "runs": runs,
    }
    return json.loads(json.dumps(result))  # type: ignore[no-any-return]  # JSON


def test_each_allocator_has_a_figure_and_all_have_one(tmp_path: Path) -> None:
    files = plot_result(a_result("ctb", "gtb", "fps"), tmp_path / "figures")
    assert [file.name for file in files] == [
        "small-ctb.png",
        "small-gtb.png",
        "small-fps.png",
        "small.png",
    ]
    assert all(file.read_bytes().startswith(PNG) for file in files)


def test_one_allocator_needs_no_combined_figure(tmp_path: Path) -> None:
    assert [file.name for file in plot_result(a_result("fps"), tmp_path)] == ["small-fps.png"]


def test_events_have_a_figure_of_their_distributions(tmp_path: Path) -> None:
    result = a_result("ctb", "fps")
    for run in result["runs"]:
        for kind, times in (("join", [0.4, 0.0, None]), ("death", [None]), ("limit", [])):
            flows = [{"t80_s": time} for time in times]
            run["events"].append({"kind": kind, "flows": flows})
    files = plot_result(result, tmp_path)
    assert [file.name for file in files][-2:] == ["small.png", "small-t80.png"]
    assert files[-1].read_bytes().startswith(PNG)


def test_the_distribution_counts_those_that_never_got_there() -> None:
    flows = [{"t80_s": time} for time in (0.4, None, 0.2, 0.2)]
    runs = [{"allocator": "fps", "events": [{"kind": "join", "flows": flows}]}]
    (axes,) = response_figure(runs).axes
    (line,) = axes.lines
    points = np.asarray(line.get_xydata())[:4].tolist()
    assert points == [[0, 0], [0.2, 0.25], [0.2, 0.5], [0.4, 0.75]]


def test_a_limiter_without_flows_is_drawn_in_a_central_run(tmp_path: Path) -> None:
    result = a_result("ctb")
    result["limiters"].append("l3")
    assert [file.name for file in plot_result(result, tmp_path)] == ["small-ctb.png"]
