"""The benchmark of a fleet that changes: every event of it is seen, and nothing stays."""

from __future__ import annotations

import io

import pytest

from testbed import netns
from testbed.bench import fleet
from testbed.bench.lanes import Setting
from testbed.harness.progress import Progress


async def test_each_event_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "TTL", "2s")
    with netns.workspace() as state:
        outcome = await fleet.measure(Setting(state, Progress(io.StringIO()), True, (0, 0)))
        assert netns.own() == []
    times = {row.group: row.summary.median for row in outcome.rows}
    assert list(times) == [*fleet.EVENTS.values()]
    assert all(time > 0 for time in times.values())
    # A lease ends when two thirds of it are over, or later.
    assert times[fleet.EVENTS["lease"]] > 1000
    assert times[fleet.EVENTS["joined"]] >= times[fleet.EVENTS["counted"]]
