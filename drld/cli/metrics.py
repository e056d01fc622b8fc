"""`drlctl metrics`: the daemon's figures for Prometheus."""

from __future__ import annotations

import click

from drld.cli.client import Daemon


@click.command()
@click.pass_obj
def metrics(daemon: Daemon) -> None:
    """Print the daemon's figures in the text format of Prometheus.

    \b
    Example, for the textfile collector of node_exporter:
      drlctl metrics | sponge /var/lib/prometheus/node-exporter/drld.prom
    """
    for line in daemon.lines("/metrics"):
        click.echo(line)
