"""Carrying out the series of figures, and writing what was found.

OUT/runs/SERIES/result.json      the runs, as data (docs/testbed.md)
OUT/FIGURE/summary.json, *.png   what was found, and its plots
OUT/report.html                  all of it on one page
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.progress import Progress
from testbed.reproduce import report
from testbed.reproduce.figure import Figure, Series
from testbed.reproduce.results import Results
from testbed.reproduce.summary import summarize
from testbed.run import RunOptions
from testbed.sim import suite as simulated
from testbed.suite import read, run_suite

REPORT = "report.html"
SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Setting:
    """What the user chose."""

    out: Path
    quick: bool
    options: RunOptions
    progress: Progress

    def directory(self, series: Series) -> Path:
        """Where the runs of a series are."""
        return self.out / "runs" / series.name


def series_of(figures: Sequence[Figure], quick: bool) -> list[Series]:
    """Each series once, in the order in which they are needed."""
    needed = [series for figure in figures for series in figure.series(quick)]
    return list({series.name: series for series in needed}.values())


async def measure(figures: Sequence[Figure], setting: Setting) -> None:
    """Carry out what is missing of all series; after each, conclude the figures that have all.

    Raises:
        HostError: the host cannot do it.
    """
    waiting = list(figures)
    series = series_of(figures, setting.quick)
    done: set[str] = set()
    for number, one in enumerate(series, 1):
        left_s = sum(other.seconds(setting.quick) for other in series[number - 1 :])
        setting.progress.note(
            f"{one.name} ({number} of {len(series)} series): about "
            f"{duration(one.seconds(setting.quick))}; everything that is left: {duration(left_s)}"
        )
        await _carry_out(one, setting)
        done.add(one.name)
        for figure in [
            one for one in waiting if all(s.name in done for s in one.series(setting.quick))
        ]:
            setting.progress.begin(figure.name)
            setting.progress.step("drawing")
            conclude(figure, setting)
            waiting.remove(figure)


async def _carry_out(series: Series, setting: Setting) -> None:
    """Carry out what is missing of a series."""
    experiment, out = series.load(setting.quick), setting.directory(series)
    if series.simulated:
        await simulated.run_suite(experiment, out, setting.progress, resumed=True)
    else:
        await run_suite(experiment, setting.options, out, setting.progress, resumed=True)


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
