"""`drlctl topic profile`: the rate and burst that a limit's messages need."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import NamedTuple

import click

from drld.cli.client import Daemon, Refused, limit_path
from drld.cli.completion import limit_names
from drld.cli.output import json_option, write_json
from drld.messages.envelope import Envelope, envelope, spread
from drld.messages.spec import MESSAGES
from drld.model import NS_PER_S
from drld.units import human_amount, human_rate

MOST = 1_000_000
"""The most messages of a profile: drlctl needs some 200 bytes for each."""
_LEAST = 1000
"""The fewest messages of a good profile: a hundredth of fewer messages is no more than chance."""


class Recorded(NamedTuple):
    """The arrivals of a recording."""

    arrivals_ns: list[int]
    duration_ns: int
    missed: int


@click.group()
def topic() -> None:
    """Profile the messages of a limit."""


@topic.command()
@click.argument("limit", shell_complete=limit_names)
@click.option(
    "--seconds", type=click.IntRange(1, 3600), default=60, show_default=True, help="To record."
)
@json_option
@click.pass_obj
def profile(daemon: Daemon, limit: str, seconds: int, as_json: bool) -> None:
    """Record messages, and show the rate and burst that they need.

    The messages are those of LIMIT. The rate is 1.1 times theirs. The burst is the smallest with
    which 99 % of them do not wait. Bursts of ten parts of the recording show how much it depends on
    chance. A limit in shadow mode holds nothing while its messages are recorded.

    \b
    drlctl topic profile city-traffic --seconds 600
    """
    found = _record(daemon, limit, seconds)
    if len(found.arrivals_ns) < 2:
        raise Refused(f"limit {limit}: no messages came in {seconds} s: nothing can be said")
    made = envelope(found.arrivals_ns, found.duration_ns)
    parts = spread(found.arrivals_ns, found.duration_ns)
    if as_json:
        write_json(
            {
                "limit": limit,
                "messages": len(found.arrivals_ns),
                "missed": found.missed,
                "seconds": found.duration_ns / NS_PER_S,
                "rate": float(made.rate),
                "burst": made.burst,
                "bursts_of_parts": parts,
            }
        )
    else:
        _write(found, made, parts)


def _record(daemon: Daemon, limit: str, seconds: int) -> Recorded:
    """Record until the time has passed, enough messages have come, or the operator interrupts."""
    arrivals_ns: list[int] = []
    missed = 0
    begin = time.monotonic()
    try:
        with closing(daemon.lines(limit_path(limit, "arrivals"))) as lines:
            for line in lines:
                batch = json.loads(line)
                arrivals_ns += batch["arrivals_ns"]
                missed = batch["missed"]
                if time.monotonic() - begin >= seconds or len(arrivals_ns) >= MOST:
                    break
    except KeyboardInterrupt:
        pass
    return Recorded(arrivals_ns, round((time.monotonic() - begin) * NS_PER_S), missed)


def _write(found: Recorded, made: Envelope, parts: list[int]) -> None:
    number, duration_s = len(found.arrivals_ns), found.duration_ns / NS_PER_S
    mean = human_rate(number / duration_s, MESSAGES.name)
    click.echo(f"recorded  {number} messages in {duration_s:.1f} s, {mean}")
    click.echo(f"rate      {human_rate(float(made.rate), MESSAGES.name)}")
    click.echo(f"burst     {human_amount(made.burst, MESSAGES.name)}")
    click.echo(f"parts     {' '.join(map(str, sorted(parts)))}: the bursts of ten parts")
    if number < _LEAST:
        click.echo(f"few messages: record at least {_LEAST} of them")
    if found.missed:
        click.echo(f"{found.missed} messages were not recorded: they came too fast")
    if max(parts) > 2 * min(parts):
        click.echo("the parts differ much: record for longer, and take a larger burst")


COMMANDS = (topic,)
