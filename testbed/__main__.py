"""`python -m testbed`: run experiments, draw results, clean up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from drld import units
from testbed import arrival, netns
from testbed.errors import HostError
from testbed.fleet import DATAPATHS
from testbed.harness.ledger import RESULT
from testbed.harness.progress import Progress
from testbed.interrupt import run_to_end
from testbed.link import BACKENDS, probed
from testbed.options import OUT, draw, experiment_options, once_option, run_experiment
from testbed.run_bounds import refuse

_LOAD = 0.95
"""Rate of a stream over its bucket's: the bucket is full again soon after a late packet."""
_BUSY = 2 * (os.cpu_count() or 1)
"""Busy processes: two for each processor make a daemon wait."""


@click.group()
def main() -> None:
    """Experiments on real daemons and real TCP, in network namespaces."""


@main.command()
@experiment_options
@click.option("--datapath", type=click.Choice(DATAPATHS), default="auto", show_default=True)
@click.option("--links", type=click.Choice(BACKENDS), default="auto", show_default=True)
@once_option
def run(experiment: str, settings: tuple[str, ...], out: Path | None, **chosen: Any) -> None:
    """Run EXPERIMENT: a TOML file, or the name of one that comes with the testbed."""
    chosen["links"] = probed(chosen["links"])
    run_experiment(experiment, settings, out, refuse, **chosen)


@main.command()
@click.argument("result", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Default: next to the result.")
def plot(result: Path, out: Path | None) -> None:
    """Draw the plots of a RESULT (a result.json) again."""
    draw(json.loads(result.read_text(encoding="utf-8")), out or result.parent)


@main.command("arrival")
@click.option(
    "--source", "sources", multiple=True, type=click.Choice(arrival.SOURCES),
    help="Only this source; may be repeated.",
)  # fmt: skip
@click.option("--rate", default="20mbit", show_default=True)
@click.option("--burst", default="15kB", show_default=True, help="Depth of the bucket.")
@click.option("--seconds", type=click.FloatRange(1, 300), default=10.0, show_default=True)
@click.option("--repeat", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "arrival", show_default=True)
def arrival_command(
    *,
    sources: tuple[str, ...],
    rate: str,
    burst: str,
    seconds: float,
    repeat: int,
    out: Path,
) -> None:
    """Count a conforming stream's drops that are due to a late daemon."""
    progress = Progress()

    async def work() -> dict[str, Any]:
        stream = arrival.Stream(
            units.parse_rate(rate) * 8, units.parse_size(burst), 1000, _LOAD, seconds, _BUSY
        )
        return await arrival.compare(stream, sources or arrival.SOURCES, repeat, progress)

    result = run_to_end(work)
    progress.end()
    click.echo(arrival.table(result))
    out.mkdir(parents=True, exist_ok=True)
    file = out / RESULT
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    click.echo(f"{file}")


@main.command()
def clean() -> None:
    """Remove namespaces and directories of killed runs."""
    if os.geteuid() != 0:
        raise click.ClickException("network namespaces need root: run the command as root")
    try:
        for name in netns.remove_stale():
            click.echo(f"removed {name}")
    except HostError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
