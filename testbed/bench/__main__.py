"""`python -m testbed.bench`: runs benchmarks, or shows an earlier result."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from testbed import netns
from testbed.bench import report
from testbed.bench.lanes import Setting
from testbed.bench.registry import BENCHMARKS
from testbed.bench.summary import Outcome
from testbed.harness.markdown import aligned
from testbed.harness.page import PLOTS, RESULTS, Page
from testbed.harness.progress import Progress
from testbed.interrupt import run_to_end
from testbed.provenance import head

_FILE = click.Path(dir_okay=False, path_type=Path)


_EPILOG = aligned([[name, benchmark.title] for name, benchmark in BENCHMARKS.items()])


@click.command(epilog=f"\b\nBenchmarks:\n{_EPILOG}")
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)), metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Shorter and rougher.")
@click.option("--json", "json_file", type=_FILE, help="Write the result to this file.")
@click.option("--plot", "figure", type=_FILE, help="Draw the result into this file (PNG).")
@click.option("--docs", is_flag=True, help="Write the result into results/.")
@click.option(
    "--from", "earlier", type=_FILE,
    help="A file of --json: replace the benchmarks NAME in its result. Without a NAME, show it.",
)  # fmt: skip
def main(
    *,
    names: tuple[str, ...],
    quick: bool,
    json_file: Path | None,
    figure: Path | None,
    docs: bool,
    earlier: Path | None,
) -> None:
    """Run each benchmark NAME (default: all) of the cost of limiting."""
    progress = Progress()
    result = {**head(quick=quick), "benchmarks": {}}
    if earlier is not None:
        result = json.loads(earlier.read_text(encoding="utf-8"))
    for name in names or (() if earlier else BENCHMARKS):
        result["benchmarks"][name] = _measure(name, quick, progress)
        if json_file is not None:
            # An interrupted run keeps what it has.
            json_file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    progress.end()
    click.echo(report.text(result))
    pages = [(page, _of_page(page, result)) for page in report.PAGES]
    drawn = [(figure, result)] if figure is not None else []
    if docs and pages[0][1]["benchmarks"]:
        drawn.append((RESULTS / PLOTS / report.FIGURE, pages[0][1]))
    if drawn:
        # matplotlib takes a second to import, and measuring does not need it.
        from testbed.bench.plot import draw

        for path, part in drawn:
            draw(part, path)
            click.echo(f"{path}")
    if docs:
        for page, part in pages:
            if part["benchmarks"]:
                click.echo(f"{page.write(report.sections(page, part))}")


def _of_page(page: Page, result: dict[str, Any]) -> dict[str, Any]:
    """The part of a result that a page shows."""
    found = result["benchmarks"].items()
    # A result of an earlier version may have others.
    pages = {name: benchmark.page for name, benchmark in BENCHMARKS.items()}
    shown = {name: it for name, it in found if pages.get(name, report.PAGE) is page}
    return {**result, "benchmarks": shown}


def _measure(name: str, quick: bool, progress: Progress) -> dict[str, Any]:
    benchmark = BENCHMARKS[name]
    progress.begin(name)

    async def work() -> Outcome:
        with netns.workspace() as state:
            processors = sorted(os.sched_getaffinity(0))
            return await benchmark.measure(
                Setting(state, progress, quick, (processors[0], processors[-1]))
            )

    began = time.monotonic()
    outcome = run_to_end(work)
    seconds = round(time.monotonic() - began, 1)
    return {"title": benchmark.title, "seconds": seconds, **asdict(outcome)}


if __name__ == "__main__":
    main()
