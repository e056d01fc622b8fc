"""What figures need, and writing what was found.

OUT/runs/SERIES/result.json      the runs, as data (docs/testbed.md)
OUT/FIGURE/summary.json, *.png   what was found, and its plots
OUT/report.html                  all of it on one page
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from testbed.harness import report
from testbed.harness.figure import Figure, Series
from testbed.harness.results import Results
from testbed.harness.schedule import Room, Task, time_left
from testbed.harness.suite import Ledger, Notes, header, read
from testbed.harness.summary import summarize

REPORT = "report.html"
SUMMARY = "summary.json"
LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Setting:
    """What the user chose."""

    out: Path
    quick: bool
    datapath: str
    links: str
    room: Room
    """For several runs at a time."""
    once: bool = False
    """Whether a run that the host disturbed counts, with a remark."""

    def directory(self, series: Series) -> Path:
        """Where the runs of a series are."""
        return self.out / "runs" / series.name


@contextlib.contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Nobody else writes into `out` meanwhile.

    Raises:
        click.ClickException: somebody does.
    """
    out.mkdir(parents=True, exist_ok=True)
    # It stays: who removed it could take away what another has just claimed.
    with (out / LOCK).open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException(
                f"{out} is being written by another `reproduce`: --jobs does several runs at a "
                "time, --out names another place"
            ) from None
        yield


def series_of(figures: Sequence[Figure], quick: bool) -> list[Series]:
    """Each series once, in the order in which they are needed."""
    needed = [series for figure in figures for series in figure.series(quick)]
    return list({series.name: series for series in needed}.values())


def ledger(series: Series, setting: Setting, notes: Notes) -> Ledger:
    """The result of a series, with those of its runs that are there and still count."""
    experiment = series.load(setting.quick)
    place = "simulated" if series.simulated else ""
    chosen = {"datapath": place or setting.datapath, "links": place or setting.links}
    head = header(experiment, chosen, simulated=series.simulated)
    jobs = 1 if series.alone else setting.room.jobs
    directory = setting.directory(series)
    return Ledger(series.name, experiment, {**head, "jobs": jobs}, directory, notes, resumed=True)


def tasks_of(
    series: Series, quick: bool, room: Room, runs: Sequence[tuple[str, int]] | None = None
) -> list[Task]:
    """These runs of a series, (allocator, repetition), or all."""
    experiment = series.load(quick)
    table = experiment.table
    alone = not series.simulated and (series.alone or room.jobs == 1)
    seconds = {name: series.run_seconds(table.seconds, name) for name in table.allocators}
    return [
        Task(series.name, *run, series.simulated, seconds[run[0]], alone)
        for run in (experiment.runs if runs is None else runs)
    ]


def expected_s(figures: Sequence[Figure], quick: bool, room: Room) -> float:
    """How long all runs of these figures take, about."""
    tasks = [task for series in series_of(figures, quick) for task in tasks_of(series, quick, room)]
    return time_left(tasks, [], room, lambda task: task.seconds)


def conclude(figure: Figure, setting: Setting) -> dict[str, Any]:
    """Check and draw a figure from the runs that are there; return its summary."""
    found = {
        series.name: read(setting.directory(series)) for series in figure.series(setting.quick)
    }
    results = {name: result for name, result in found.items() if result is not None}
    directory = setting.out / figure.name
    directory.mkdir(parents=True, exist_ok=True)
    seen = Results(results)
    plots = [plot.name for plot in figure.draw(seen, directory)]
    summary = summarize(figure, figure.evaluate(seen), plots, results, quick=setting.quick)
    text = json.dumps(summary, indent=1) + "\n"
    (directory / SUMMARY).write_text(text, encoding="utf-8")
    return summary


def summaries(figures: Sequence[Figure], out: Path) -> list[dict[str, Any]]:
    """What `out` has of these figures, whenever it was found."""
    files = [out / figure.name / SUMMARY for figure in figures]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]


def write_report(figures: Sequence[Figure], out: Path) -> Path:
    """Write the page with all figures that `out` has."""
    known = summaries(figures, out)
    plots = {
        summary["name"]: [(out / summary["name"] / plot).read_bytes() for plot in summary["plots"]]
        for summary in known
    }
    out.mkdir(parents=True, exist_ok=True)
    page = out / REPORT
    page.write_text(report.html(known, plots), encoding="utf-8")
    return page


def duration(seconds: float) -> str:
    """Hours and minutes, or seconds where it is less than two minutes."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
