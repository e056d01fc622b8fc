"""`python -m testbed.reproduce`: the paper's figures and tables, and studies, each by its name."""

from __future__ import annotations

import os
from pathlib import Path

import click

from testbed.fleet import DATAPATHS
from testbed.harness import document, report
from testbed.harness.campaign import Campaign
from testbed.harness.figure import Figure
from testbed.harness.progress import Board
from testbed.harness.runner import (
    Setting,
    claimed,
    conclude,
    duration,
    expected_s,
    summaries,
    write_report,
)
from testbed.harness.schedule import Room
from testbed.harness.suite import read
from testbed.harness.summary import missing_count
from testbed.interrupt import run_to_end
from testbed.link import probed
from testbed.reproduce.registry import FIGURES

_OUT, _QUICK_OUT = Path("reproduce-out"), Path("reproduce-out/quick")
_PROCESSORS = os.cpu_count() or 1
_JOBS = {False: max(_PROCESSORS // 2, 1), True: 2 * _PROCESSORS}
"""Unless told, by whether it is quick."""


class _Command(click.Command):
    """Its help ends with the names, and how long each takes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        rows = []

        def takes(figures: list[Figure]) -> tuple[str, str]:
            full, quick = (
                duration(expected_s(figures, quick, Room(jobs, _PROCESSORS)))
                for quick, jobs in _JOBS.items()
            )
            return full, quick

        for figure in FIGURES.values():
            full, quick = takes([figure])
            shared = ", ".join(dict.fromkeys(s.name.split("/")[0] for s in figure.all_series))
            rows.append((figure.name, f"{figure.title}; {full}, quick {quick} (runs: {shared})"))
        full, quick = takes(list(FIGURES.values()))
        rows.append(("all", f"{full}, quick {quick}: figures share runs"))
        with formatter.section("Names, and how long they take unless --jobs says otherwise"):
            formatter.write_dl(rows)


@click.command(cls=_Command)
@click.argument("names", nargs=-1, type=click.Choice(list(FIGURES)), metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Few and short runs: a look, not a reproduction.")
@click.option(
    "--datapath", type=click.Choice([name for name in DATAPATHS if name != "tbf"]),
    default="auto", show_default=True,
)  # fmt: skip
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path),
    help=f"Default: {_OUT}, and {_QUICK_OUT} with --quick.",
)  # fmt: skip
@click.option(
    "--jobs", type=click.IntRange(1, 64),
    help="So many runs on the testbed at a time; of more than one, some limiters are run later "
    "than on a host of their own, and a run in which links or samples come too late is done once "
    "more, in the end alone. With 1 nothing runs beside a run, which is the most exact. "
    "Simulated runs take what processors are idle, and do not depend on it. Default: "
    f"{_JOBS[False]}, one for every two processors, and {_JOBS[True]} with --quick.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Keep runs that the host disturbed, with a remark.")
@click.option("--only-report", is_flag=True, help="Measure nothing: check and draw what OUT has.")
@click.option(
    "--docs",
    is_flag=True,
    help="Write what was found into results/ (with --only-report: what OUT has).",
)
def main(
    *,
    names: tuple[str, ...],
    quick: bool,
    datapath: str,
    out: Path | None,
    jobs: int | None,
    once: bool,
    only_report: bool,
    docs: bool,
) -> None:
    """Reproduce figures and tables of the paper: NAMES of them, or all.

    Runs that OUT has already are kept, so what was interrupted goes on where it was.
    """
    directory = out or (_QUICK_OUT if quick else _OUT)
    everything = list(FIGURES.values())
    figures = [FIGURES[name] for name in names or FIGURES]
    # A report needs no links.
    links = "auto" if only_report else probed("auto")
    room = Room(jobs or _JOBS[quick], _PROCESSORS)
    setting = Setting(directory, quick, datapath, links, room, once)

    async def work() -> None:
        await Campaign(figures, setting, Board()).carry_out()

    if only_report:
        for figure in figures:
            if any(read(setting.directory(series)) for series in figure.series(quick)):
                conclude(figure, setting)
    else:
        with claimed(directory):
            try:
                run_to_end(work)
            finally:
                # What is interrupted leaves a report of what it has.
                write_report(everything, directory)
    known = summaries(everything, directory)
    shown = [one for one in known if one["name"] in {figure.name for figure in figures}]
    click.echo(report.text(shown))
    click.echo(f"{write_report(everything, directory)}")
    if docs:
        for page in document.pages(FIGURES).values():
            own = [one for one in shown if one["name"] in page.sections]
            if own:
                plots = [directory / one["name"] / plot for one in own for plot in one["plots"]]
                sections = {one["name"]: document.section(one) for one in own}
                click.echo(f"{page.write(sections, plots)}")
    absent = sum(missing_count(one) for one in shown)
    if absent and not only_report:
        raise click.ClickException(f"{absent} runs are missing; the same command does them")


if __name__ == "__main__":
    main()
