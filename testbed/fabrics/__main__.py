"""`python -m testbed.fabrics`: compare the fabrics (docs/gossip.md)."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import click

from drld.gossip.fabrics import FABRICS
from testbed.fabrics import campaign, document
from testbed.fabrics.case import SIZES, cases
from testbed.fabrics.results import Results
from testbed.harness.ledger import read
from testbed.harness.progress import Board
from testbed.interrupt import run_to_end

_OUT = Path("fabrics-out")


@click.command()
@click.option("--quick", is_flag=True, help="A few small fleets: a preview, in two minutes.")
@click.option("--fabric", "fabrics", multiple=True, type=click.Choice(list(FABRICS)))
@click.option("--limiters", "sizes", multiple=True, type=click.Choice([str(n) for n in SIZES]))
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=max((os.cpu_count() or 1) // 2, 1),
    show_default=True, help="Number of simultaneous fleets.",
)  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=_OUT)
@click.option("--only-report", is_flag=True, help="Measure nothing: show and draw the runs in OUT.")
@click.option("--docs", is_flag=True, help="Write the sizes in OUT into results/.")
def main(
    *,
    quick: bool,
    fabrics: tuple[str, ...],
    sizes: tuple[str, ...],
    jobs: int,
    out: Path,
    only_report: bool,
    docs: bool,
) -> None:
    """Compare fabrics in fleets that only gossip, under virtual time.

    The default is all fabrics with 10, 100, 490 and 1,000 limiters. They take about twelve hours of
    a processor, and up to 2 GB of memory. Runs in OUT that still count are kept.
    """
    # matplotlib takes a second to import.
    from testbed.fabrics.plot import draw

    chosen = tuple(int(size) for size in sizes) or (SIZES[:2] if quick else SIZES)
    wanted = cases(fabrics or tuple(FABRICS), chosen, quick=quick)
    if only_report:
        result = read(out)
        if result is None:
            raise click.ClickException(f"{out} has no result yet; leave out --only-report")
    else:
        carry_out = partial(campaign.carry_out, wanted, out, jobs, Board())
        result = run_to_end(carry_out, root=False)
    results = Results(result["runs"])
    click.echo(document.text(results))
    plots = draw(results, out)
    for path in plots:
        click.echo(f"{path}")
    if docs:
        origin = f"A run of {result['started_at'][:10]}, commit {result['commit'][:7]}."
        sections = document.sections(results, plots, origin)
        click.echo(f"{document.PAGE.write(sections, plots if 'plots' in sections else [])}")


if __name__ == "__main__":
    main()
