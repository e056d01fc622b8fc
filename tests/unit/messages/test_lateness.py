"""How many busy processes `python -m testbed.messages stamps` starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.harness.progress import Progress
from testbed.messages import lateness
from testbed.messages.lateness import HEADER, MOST_HOGS, Outcome, Stream, compare, rows

PROCESSORS = 2


async def found(
    monkeypatch: pytest.MonkeyPatch, sources: tuple[str, ...], enough: int, *, first: int = 4
) -> list[tuple[str, int]]:
    """The runs in their order, each with its busy processes; with `enough` of these, 1.1 % of the
    messages wait without stamps, and otherwise 1 %."""

    async def run(stream: Stream, source: str, progress: Progress) -> Outcome:
        progress.step(source)
        waited = 0 if source != "read" else 11 if stream.hogs >= enough else 10
        return Outcome(source, stream.hogs, 1000, 0, 1000, waited, 0.0, 1000, 0, 0)

    monkeypatch.setattr(lateness, "_run", run)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(PROCESSORS)})
    stream = Stream(
        connections=1, messages=1000, rate=1, burst=1, load=1.0, hogs=first, stops=not first
    )
    with Path(os.devnull).open("w", encoding="ascii") as silence:
        result = await compare(stream, sources, 1, Progress(silence))
    assert all(len(row) == len(HEADER) for row in rows(result))
    assert result["stream"]["hogs"] == first
    return [(run["source"], run["hogs"]) for run in result["runs"]]


async def test_busy_processes_are_added_until_messages_wait_without_stamps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sources with stamps have the first number and the last one."""
    both = ("socket", "read")
    begun = [("socket", 4), ("read", 4)]
    assert await found(monkeypatch, both, 4) == begun
    assert await found(monkeypatch, both, 8) == [*begun, ("read", 6), ("read", 8), ("socket", 8)]
    most = MOST_HOGS * PROCESSORS
    risen = [("read", hogs) for hogs in range(6, most + 1, PROCESSORS)]
    assert await found(monkeypatch, both, most + 1) == [*begun, *risen, ("socket", most)]


async def test_none_are_added_without_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no run without stamps, or the daemon is stopped instead."""
    assert await found(monkeypatch, ("socket",), 8) == [("socket", 4)]
    assert await found(monkeypatch, ("read",), 6) == [("read", 4), ("read", 6)]
    assert await found(monkeypatch, ("read",), 8, first=0) == [("read", 0)]


def test_runs_beside_as_many_busy_processes_are_added_up() -> None:
    runs = [
        {"source": "read", "hogs": hogs, "arrived": 100, "waited": waited, "p99_ms": float(waited)}
        | dict.fromkeys(("beyond", "unstamped", "stops"), 0)
        for hogs, waited in ((4, 0), (4, 1), (6, 2))
    ]
    totals = rows({"runs": runs})[len(runs) :]
    assert [row[:6] for row in totals] == [
        ["all read", "4", "200", "1", "0.500%", "1.00"],
        ["all read", "6", "100", "2", "2.000%", "2.00"],
    ]
