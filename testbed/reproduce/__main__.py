"""`python -m testbed.reproduce`: the paper's figures and tables, each by its name."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from testbed.fleet import DATAPATHS
from testbed.interrupt import run_to_end
from testbed.link import choose_links, probed
from testbed.markdown import replace_section
from testbed.progress import Progress
from testbed.reproduce import report
from testbed.reproduce.registry import FIGURES
from testbed.reproduce.runner import (
    Setting,
    conclude,
    duration,
    measure,
    series_of,
    summaries,
    write_report,
)
from testbed.reproduce.summary import missing_count
from testbed.run import RunOptions
from testbed.suite import read

_DOCUMENT = Path(__file__).parents[2] / "docs/reproduction.md"
_OUT, _QUICK_OUT = Path("reproduce-out"), Path("reproduce-out/quick")


class _Command(click.Command):
    """Its help ends with the names, and how long each takes."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        rows = []
        for figure in FIGURES.values():
            full, quick = (duration(figure.seconds(quick)) for quick in (False, True))
            shared = ", ".join(dict.fromkeys(s.name.split("/")[0] for s in figure.all_series))
            rows.append((figure.name, f"{figure.title}; {full}, quick {quick} (runs: {shared})"))
        every = {quick: series_of(list(FIGURES.values()), quick) for quick in (False, True)}
        full, quick = (
            duration(sum(one.seconds(quick) for one in series)) for quick, series in every.items()
        )
        rows.append(("all", f"{full}, quick {quick}: figures share runs"))
        with formatter.section("Names, and how long they take"):
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
@click.option("--only-report", is_flag=True, help="Measure nothing: check and draw what OUT has.")
@click.option("--docs", is_flag=True, help="Write the table into docs/reproduction.md.")
def main(
    *,
    names: tuple[str, ...],
    quick: bool,
    datapath: str,
    out: Path | None,
    only_report: bool,
    docs: bool,
) -> None:
    """Reproduce figures and tables of the paper: NAMES of them, or all.

    Runs that OUT has already are kept, so what was interrupted goes on where it was.
    """
    directory = out or (_QUICK_OUT if quick else _OUT)
    everything = list(FIGURES.values())
    figures = [FIGURES[name] for name in names or FIGURES]
    progress = Progress()

    async def work() -> None:
        await measure(figures, setting)

    # A report needs no links.
    make_links = functools.partial(choose_links, "auto" if only_report else probed("auto"))
    setting = Setting(directory, quick, RunOptions(datapath, make_links), progress)
    if only_report:
        for figure in figures:
            if any(read(setting.directory(series)) for series in figure.series(quick)):
                conclude(figure, setting)
    else:
        try:
            run_to_end(work)
        finally:
            # What is interrupted leaves a report of what it has.
            write_report(everything, directory)
    progress.end()
    known = summaries(everything, directory)
    shown = [one for one in known if one["name"] in {figure.name for figure in figures}]
    click.echo(report.text(shown))
    click.echo(f"{write_report(everything, directory)}")
    if docs:
        document = _DOCUMENT.read_text(encoding="utf-8")
        section = report.markdown(known)
        replaced = replace_section(document, section, report.BEGIN, report.END)
        _DOCUMENT.write_text(replaced, encoding="utf-8")
        click.echo(f"{_DOCUMENT}")
    absent = sum(missing_count(one) for one in shown)
    if absent and not only_report:
        raise click.ClickException(f"{absent} runs are missing; the same command does them")


if __name__ == "__main__":
    main()
