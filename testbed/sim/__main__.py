"""`python -m testbed.sim`: run experiments of the testbed in the simulator."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from drld.errors import DrldError
from testbed.harness.progress import Progress
from testbed.options import OUT, experiment_options, load, show
from testbed.sim.suite import run_suite


@click.group()
def main() -> None:
    """Experiments under virtual time: real limiters, modelled TCP and links."""


@main.command()
@experiment_options
def run(
    *,
    experiment: str,
    settings: tuple[str, ...],
    out: Path | None,
    resume: bool,
    plots: bool,
    **changes: Any,
) -> None:
    """Run EXPERIMENT: a TOML file, or the name of one that comes with the testbed."""
    loaded = load(experiment, settings, **changes)
    directory = out or OUT / f"{loaded.table.name}-sim"
    progress = Progress()
    try:
        result = trio.run(partial(run_suite, loaded, directory, progress, resumed=resume))
    except DrldError as error:
        raise click.ClickException(str(error)) from None
    finally:
        progress.end()
    show(result, directory, plots=plots)


if __name__ == "__main__":
    main()
