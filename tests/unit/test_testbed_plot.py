"""Figures of a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed.plot import plot_result
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
    return json.loads(json.dumps(result))  # type: ignore[no-any-return]


def test_a_figure_for_each_allocator_and_one_of_all(tmp_path: Path) -> None:
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
