"""`python -m testbed`: run experiments, draw results, clean up."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import click

from testbed import arrival, netns
from testbed.errors import HostError
from testbed.fleet import DATAPATHS
from testbed.harness.ledger import RESULT
from testbed.harness.progress import Progress
from testbed.interrupt import run_to_end
from testbed.link import BACKENDS, probed
from testbed.options import OUT, PROCESSORS, draw, experiment_options, once_option, run_experiment
from testbed.run_bounds import refuse

_STREAM = arrival.Stream(
    rate_bps=20_000_000,
    depth_bytes=15_000,
    packet_bytes=1000,
    # The bucket is full again soon after a late packet.
    load=0.95,
    seconds=10.0,
    # Two for each processor make a daemon wait.
    busy=2 * PROCESSORS,
)


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
@click.option("--repeat", type=click.IntRange(1, 100), default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "arrival", show_default=True)
def arrival_command(repeat: int, out: Path) -> None:
    """Count a conforming stream's drops that are due to a late daemon."""
    progress = Progress()
    result = run_to_end(partial(arrival.compare, _STREAM, arrival.SOURCES, repeat, progress))
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
