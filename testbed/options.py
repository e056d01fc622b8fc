"""Common options of the command lines of the testbed and the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from drld.errors import ConfigError
from testbed import experiment as experiments
from testbed.experiment import ALLOCATOR_NAMES, Experiment
from testbed.harness.suite import RESULT, disturbances_of, event_table_of, failed, table_of

OUT = Path("testbed-out")

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_OPTIONS = (
    click.argument("experiment"),
    click.option("--seconds", type=float, help="Length of a run, warm-up included."),
    click.option(
        "--allocator", "allocators", multiple=True, type=click.Choice(ALLOCATOR_NAMES),
        help="Only this one; may be repeated.",
    ),
    click.option("--repeat", type=int, help="Runs of each allocator."),
    click.option("--seed", type=int),
    click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE",
        help="Replace another key of the experiment, such as gossip.interval=500ms.",
    ),
    click.option("--out", type=click.Path(path_type=Path), help="Default: testbed-out/NAME."),
    click.option(
        "--resume", is_flag=True, help="Keep the runs that OUT has; do only those missing."
    ),
    click.option("--plots/--no-plots", default=True),
)  # fmt: skip


def experiment_options(command: AnyFunction) -> AnyFunction:
    """EXPERIMENT, the options that change it, for `load`, and the directory of its result."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def load(experiment: str, settings: tuple[str, ...], **changes: Any) -> Experiment:
    """The experiment of such a command line; `changes` are of the keys of its top level.

    Raises:
        click.ClickException: the file is unreadable or has mistakes.
    """
    overrides = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in changes.items()
        if value not in (None, ())
    }
    try:
        return experiments.load(experiments.find(experiment), overrides, settings)
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def show(result: dict[str, Any], directory: Path, *, plots: bool) -> None:
    """Print the result of the runs and its directory, and draw it if `plots`.

    Raises:
        click.ClickException: runs are missing.
    """
    if result["runs"]:
        click.echo(table_of(result))
        if events := event_table_of(result):
            click.echo(f"\n{events}\n")
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
    from testbed.plot import plot_result

    for path in plot_result(result, directory):
        click.echo(f"{path}")
