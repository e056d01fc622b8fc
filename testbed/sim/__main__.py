"""`python -m testbed.sim`: run experiments of the testbed in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from testbed.options import experiment_options, run_experiment
from testbed.sim.run import refuse


@click.group()
def main() -> None:
    """Experiments under virtual time: real limiters, modelled TCP and links."""


@main.command()
@experiment_options
def run(experiment: str, settings: tuple[str, ...], out: Path | None, **chosen: Any) -> None:
    """Run EXPERIMENT: a TOML file, or the name of one that comes with the testbed."""
    run_experiment(experiment, settings, out, refuse, simulated=True, **chosen)


if __name__ == "__main__":
    main()
