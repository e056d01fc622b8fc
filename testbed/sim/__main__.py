"""`python -m testbed.sim`: run experiments of the testbed in the simulator."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click
import trio

from drld.errors import DrldError
from testbed.experiment import Experiment
from testbed.harness.progress import Progress
from testbed.harness.suite import carry_out, header
from testbed.options import OUT, experiment_options, load, show
from testbed.sim.run import simulate


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

    async def one(experiment: Experiment, allocator: str, repetition: int) -> dict[str, Any]:
        progress.step("simulating")
        return simulate(experiment, allocator, repetition)

    try:
        head = header(loaded, {"datapath": "simulated", "links": "simulated"}, simulated=True)
        result = trio.run(
            partial(carry_out, loaded, one, head, directory, progress, resumed=resume)
        )
    except DrldError as error:
        raise click.ClickException(str(error)) from None
    finally:
        progress.end()
    show(result, directory, plots=plots)


if __name__ == "__main__":
    main()
