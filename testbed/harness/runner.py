"""Figures from their runs.

OUT/runs/SERIES/result.json      the runs, as data (docs/testbed.md)
OUT/FIGURE/summary.json, *.png   the checks' outcome, and plots
OUT/PAGE.md, OUT/plots           all of it as pages (`document.py`)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click

from testbed.harness.figure import Figure
from testbed.harness.ledger import read
from testbed.harness.results import Results
from testbed.harness.summary import summarize

RUNS = "runs"
SUMMARY = "summary.json"
LOCK = ".lock"
_LOW_PRIORITY = 10


@contextlib.contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Let no other process write into `out` meanwhile.

    Raises:
        click.ClickException: another process does.
    """
    out.mkdir(parents=True, exist_ok=True)
    # The file stays: its removal could take away another process's new lock.
    with (out / LOCK).open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException(
                f"{out} is being written by another `reproduce`: use --jobs for several runs at a "
                "time, or --out for another directory"
            ) from None
        yield


class Conclusions:
    """Concludes each figure when its series are finished (`Campaign`'s `progressed`)."""

    def __init__(self, figures: Sequence[Figure], out: Path, quick: bool) -> None:
        self._left = [figure for figure in figures if figure.series(quick)]
        self._out = out
        self._quick = quick

    def __call__(self, unfinished: Set[str]) -> None:
        """Conclude what is not among the unfinished series."""
        for figure in list(self._left):
            if unfinished.isdisjoint(one.name for one in figure.series(self._quick)):
                with ThreadPoolExecutor(1, initializer=_lower_priority) as pool:
                    pool.submit(conclude, figure, self._out, self._quick).result()
                self._left.remove(figure)


def _lower_priority() -> None:
    """Runs in progress come first. Only this thread's priority: only root may raise it again."""
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), _LOW_PRIORITY))


def conclude(figure: Figure, out: Path, quick: bool) -> None:
    """Check and draw a figure from the existing runs, and write its summary."""
    found = {series.name: read(out / RUNS / series.name) for series in figure.series(quick)}
    results = {name: result for name, result in found.items() if result is not None}
    directory = out / figure.name
    directory.mkdir(parents=True, exist_ok=True)
    seen = Results(results)
    plots = [plot.name for plot in figure.draw(seen, directory)]
    summary = summarize(figure, figure.evaluate(seen), plots, results, quick=quick)
    text = json.dumps(summary, indent=1) + "\n"
    (directory / SUMMARY).write_text(text, encoding="utf-8")


def summaries(figures: Sequence[Figure], out: Path) -> list[dict[str, Any]]:
    """The existing summaries of these figures."""
    files = [out / figure.name / SUMMARY for figure in figures]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]
