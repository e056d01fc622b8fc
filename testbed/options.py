"""The options that command lines share, and `run` of the testbed and of the simulator."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from drld import units
from drld.errors import ConfigError
from testbed.experiment import Experiment
from testbed.experiment_tables import ALLOCATOR_NAMES
from testbed.harness.campaign import Campaign
from testbed.harness.ledger import RESULT, failed, read
from testbed.harness.progress import Board
from testbed.harness.schedule import Room
from testbed.harness.series import Series, Setting
from testbed.harness.tables import disturbances_of, event_table_of, legend_of, table_of
from testbed.interrupt import run_to_end

OUT = Path("testbed-out")
PROCESSORS = os.cpu_count() or 1

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

once_option = click.option(
    "--once", is_flag=True, help="Keep runs that the host disturbed, with a remark."
)


def resume_option(*, default: bool) -> Callable[[AnyFunction], AnyFunction]:
    """`--resume`, and whether it is the default."""
    return click.option(
        "--resume/--no-resume", default=default, show_default=True,
        help="Keep the runs in OUT that still count, and do only the missing ones.",
    )  # fmt: skip


_OPTIONS = (
    click.argument("experiment"),
    click.option("--seconds", type=float, help="Length of a run, warm-up included."),
    click.option(
        "--allocator", "allocators", multiple=True, type=click.Choice(ALLOCATOR_NAMES),
        help="Only this allocator; may be repeated.",
    ),
    click.option("--repeat", type=int, help="Runs of each allocator."),
    click.option("--seed", type=int, help="Seed of start times, losses and web requests."),
    click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE",
        help="Replace another key of the experiment, such as gossip.interval=500ms.",
    ),
    click.option("--out", type=click.Path(path_type=Path), help="Default: testbed-out/NAME."),
    resume_option(default=False),
    click.option("--plots/--no-plots", default=True, help="Draw the result, too."),
)  # fmt: skip


def experiment_options(command: AnyFunction) -> AnyFunction:
    """EXPERIMENT, the options that change it, and those of its result; for `run_experiment`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_experiment(
    experiment: str,
    settings: tuple[str, ...],
    out: Path | None,
    refuse: Callable[[Experiment], None],
    *,
    plots: bool,
    resume: bool,
    simulated: bool = False,
    once: bool = False,
    datapath: str = "auto",
    links: str = "auto",
    **changes: Any,
) -> None:
    """Do the runs of an experiment, and show its result.

    Args:
        experiment: a TOML file, or the name of an experiment of the testbed.
        refuse: raises ConfigError for an experiment that cannot be run.
        changes: replacements of the experiment's top-level keys; None and () are none.

    Raises:
        click.ClickException: the experiment has mistakes, or runs are missing.
    """
    overrides = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in changes.items()
        if value not in (None, ())
    }
    series = Series("", experiment, overrides, settings=settings, simulated=simulated)
    try:
        loaded = series.load(False)
        refuse(loaded)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{units.human_rate(loaded.table.limit.rate * 8)}: {loaded.table.description}")
    directory = out or OUT / f"{loaded.table.name}{'-sim' if simulated else ''}"
    place = directory.resolve()
    setting = Setting(
        place.parent, Room(1, PROCESSORS), datapath=datapath, links=links, once=once,
        resume=resume,
    )  # fmt: skip
    campaign = Campaign([replace(series, name=place.name)], setting, Board())
    run_to_end(campaign.carry_out, root=not simulated)
    result = read(directory)
    assert result is not None
    show(result, directory, plots=plots)


def show(result: dict[str, Any], directory: Path, *, plots: bool) -> None:
    """Print the result of the runs and its directory, and draw it if `plots`.

    Raises:
        click.ClickException: runs are missing.
    """
    if result["runs"]:
        click.echo(table_of(result))
        if events := event_table_of(result):
            click.echo(f"\n{events}")
        click.echo(legend_of(result))
        for disturbance in disturbances_of(result):
            click.echo(disturbance)
        click.echo(f"{directory / RESULT}")
        if plots:
            draw(result, directory)
    if missing := failed(result):
        raise click.ClickException(f"could not be measured: {'; '.join(missing)}")


def draw(result: dict[str, Any], directory: Path) -> None:
    """Draw the figures of a result, and print their directory."""
    # matplotlib takes a second to import, and a run does not need it.
    from testbed.plot_result import plot_result

    for path in plot_result(result, directory):
        click.echo(f"{path}")
