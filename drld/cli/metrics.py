"""`drlctl metrics`: the daemon's figures for Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click

from drld.cli.client import Daemon
from drld.cli.output import json_option, write_json

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


@click.command()
@json_option
@click.pass_obj
def metrics(daemon: Daemon, as_json: bool) -> None:
    """Print the daemon's figures in the text format of Prometheus.

    \b
    Example, for the textfile collector of node_exporter:
      drlctl metrics | sponge /var/lib/prometheus/node-exporter/drld.prom
    """
    lines = daemon.lines("/metrics")
    if as_json:
        write_json(list(_samples(lines)))
        return
    for line in lines:
        click.echo(line)


def _samples(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The samples of the text format, without help texts and types."""
    for line in lines:
        if line and not line.startswith("#"):
            found = _SAMPLE.fullmatch(line)
            assert found is not None
            name, labels, value = found.groups()
            # The escapes of a label's value are among those of JSON.
            pairs = {key: json.loads(text) for key, text in _LABEL.findall(labels or "")}
            yield {"name": name, "labels": pairs, "value": float(value)}
