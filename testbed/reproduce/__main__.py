"""`python -m testbed.reproduce`: the paper's figures and tables, and studies, each by its name."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import click

from testbed.fleet import DATAPATHS
from testbed.harness import document, report
from testbed.harness.campaign import Campaign
from testbed.harness.figure import Figure, series_of
from testbed.harness.ledger import read
from testbed.harness.pool import duration
from testbed.harness.progress import Board
from testbed.harness.runner import RUNS, Conclusions, claimed, conclude, summaries
from testbed.harness.schedule import Room
from testbed.harness.series import Setting, expected_s
from testbed.harness.summary import missing_count
from testbed.interrupt import run_to_end
from testbed.link import probed
from testbed.options import PROCESSORS, once_option, resume_option
from testbed.reproduce.registry import FIGURES, GROUPS

_OUT, _QUICK_OUT = Path("reproduce-out"), Path("reproduce-out/quick")
_JOBS = {False: max(PROCESSORS // 2, 1), True: 2 * PROCESSORS}
"""The default of --jobs, by --quick."""


class _Command(click.Command):
    """A command whose help ends with the figures and their expected durations."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        def takes(*figures: Figure) -> str:
            full, quick = (
                duration(expected_s(series_of(figures, quick), quick, Room(jobs, PROCESSORS)))
                for quick, jobs in _JOBS.items()
            )
            return f"{full}, quick {quick}"

        rows = []
        for figure in FIGURES.values():
            shared = ", ".join(dict.fromkeys(s.name.split("/")[0] for s in figure.all_series))
            rows.append((figure.name, f"{figure.title}; {takes(figure)} (runs: {shared})"))
        for name, members in GROUPS.items():
            rows.append(
                (name, f"{', '.join(members)}; {takes(*map(FIGURES.__getitem__, members))}")
            )
        rows.append(("all", f"{takes(*FIGURES.values())}: figures share runs"))
        with formatter.section("Names, and their durations with the default of --jobs"):
            formatter.write_dl(rows)


@click.command(cls=_Command)
@click.argument("names", nargs=-1, type=click.Choice([*FIGURES, *GROUPS]), metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Few and short runs: a preview, not a reproduction.")
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
    help="Number of simultaneous runs on the testbed. With more than one, some limiters run later "
    "than on a host of their own. A run with late links or samples is repeated once, and then "
    "alone after all others. With 1 every run has the host for itself, which is the most exact. "
    "Simulated runs use idle processors, and do not depend on it. Default: "
    f"{_JOBS[False]}, one for every two processors, and {_JOBS[True]} with --quick.",
)  # fmt: skip
@click.option(
    "--runs", metavar="PATTERN",
    help="Do only the runs of these series, such as any-traffic/fleet-*; the report says which are "
    "missing.",
)  # fmt: skip
@once_option
@resume_option(default=True)
@click.option(
    "--only-report", is_flag=True, help="Measure nothing: check and draw the runs in OUT."
)
@click.option(
    "--docs", is_flag=True, help="Write the findings into results/ (with --only-report: of OUT)."
)
def main(
    *,
    names: tuple[str, ...],
    quick: bool,
    datapath: str,
    out: Path | None,
    jobs: int | None,
    runs: str | None,
    once: bool,
    resume: bool,
    only_report: bool,
    docs: bool,
) -> None:
    """Reproduce figures and tables of the paper: NAMES, or all of them.

    An interrupted command continues when it is repeated.
    """
    directory = out or (_QUICK_OUT if quick else _OUT)
    everything = list(FIGURES.values())
    wanted = [each for name in names or FIGURES for each in GROUPS.get(name, (name,))]
    figures = [FIGURES[name] for name in dict.fromkeys(wanted)]
    if only_report:
        for figure in figures:
            if any(read(directory / RUNS / series.name) for series in figure.series(quick)):
                conclude(figure, directory, quick)
    else:
        room = Room(jobs or _JOBS[quick], PROCESSORS)
        setting = Setting(
            directory / RUNS, room, quick, datapath, probed("auto"), once=once, resume=resume
        )
        series = series_of(figures, quick)
        chosen = [one for one in series if fnmatch(one.name, runs or "*")]
        if not chosen:
            names_of_all = ", ".join(one.name for one in series)
            raise click.BadParameter(f"no series is called {runs} (there are {names_of_all})")
        with claimed(directory):
            campaign = Campaign(
                chosen, setting, Board(), Conclusions(figures, directory, quick)
            )  # fmt: skip
            try:
                run_to_end(campaign.carry_out)
            finally:
                # An interrupted campaign leaves a report of its results so far.
                document.write(FIGURES, summaries(everything, directory), directory, directory)
    known = summaries(everything, directory)
    shown = [one for one in known if one["name"] in {figure.name for figure in figures}]
    click.echo(report.text(shown))
    pages = document.write(FIGURES, known, directory, directory)
    for path in [*pages, *(document.write(FIGURES, shown, directory) if docs else [])]:
        click.echo(f"{path}")
    absent = sum(missing_count(one) for one in shown)
    if absent and not (only_report or runs):
        raise click.ClickException(f"{absent} runs are missing; repeat the command to do them")


if __name__ == "__main__":
    main()
