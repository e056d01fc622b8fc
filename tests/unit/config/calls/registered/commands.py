"""The command of the plane of calls."""

import click


@click.command()
def calls() -> None:
    """Show the calls under way."""
    click.echo("none")


COMMANDS = (calls,)
