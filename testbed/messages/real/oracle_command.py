"""`python -m testbed.messages oracle`: real brokers behind drld, judged from the broker's side."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from random import Random

import click

from drld.model import NS_PER_S
from testbed import child, netns
from testbed.interrupt import run_to_end
from testbed.messages.real.frames import Protocol
from testbed.messages.real.oracle import judge
from testbed.messages.real.stage import Limit, carried, staged

BROKERS: dict[str, Protocol] = {"nats": "nats", "mosquitto": "mqtt"}
CONNECTIONS, RATE, BURST = 40, 200, 26
"""Connections, and rate and burst of the limit, messages/s and messages."""
_AT_ONCE_NS = 20_000_000
LATEST_MS = 250.0
"""No message is charged more than this before it is read."""
BROKEN, LATE = 1, 2
"""Exit statuses."""


def schedule(
    rng: Random, connections: int, rate: int, burst: int, seconds: float
) -> list[tuple[int, int]]:
    """A batch of b and one more after idleness, then bursts at twice the rate and pauses."""
    times = [(number, number % connections) for number in range(burst + 1)]
    at_s = 1.0 + (burst + 1) / rate
    while at_s < seconds:
        size = rng.randint(1, 2 * burst)
        times += [
            (int((at_s + rng.random() * size / 2 / rate) * NS_PER_S), rng.randrange(connections))
            for _ in range(size)
        ]
        at_s += size / rate * rng.choice((0.5, 1.0, 1.5))
    return sorted(times)


async def _carried(
    directory: Path, name: str, planned: list[tuple[int, int]]
) -> tuple[list[tuple[int, int, int, int]], list[int]]:
    """See `carried`: with one broker of this name."""
    async with staged(directory, BROKERS[name], 1, Limit(RATE, BURST)) as stage:
        return await carried(stage, [0] * CONNECTIONS, planned)


@click.command()
@click.option("--broker", type=click.Choice(list(BROKERS)), multiple=True, help="Default: both.")
@click.option("--seconds", default=20.0, show_default=True)
def oracle(broker: tuple[str, ...], seconds: float) -> None:
    """See that never more than b + r (dt + lateness) + 1 messages leave in any window.

    A subscriber at the broker itself counts. The lateness is the limiter's own worst. The batch
    after idleness passes at once, and the message after it waits for 1/r. The exit status is 1 if
    the bucket was not kept, and 2 if it was, but messages were late by more than 250 ms.
    """
    child.raise_priority()
    status = 0
    with netns.workspace() as directory:
        for name in broker or BROKERS:
            planned = schedule(Random(1), CONNECTIONS, RATE, BURST, seconds)
            came, lags = run_to_end(partial(_carried, directory, name, planned))
            begin_ns = min(due_ns for _, _, due_ns, _ in came) - planned[0][0]
            sent_ns = [begin_ns + at + lag for (at, _), lag in zip(planned, lags, strict=True)]
            came_ns = sorted(at_ns for *_, at_ns in came)
            verdict = judge(sent_ns, came_ns, RATE, BURST)
            batch_ms = (came_ns[BURST - 1] - sent_ns[0]) / 1e6
            next_ms = (came_ns[BURST] - sent_ns[0]) / 1e6
            waited = sum(at - due > _AT_ONCE_NS for _, _, due, at in came)
            if not verdict.holds:
                found, status = "NOT KEPT", BROKEN
            elif verdict.late_ns / 1e6 > LATEST_MS:
                found, status = "too late", status or LATE
            else:
                found = "kept"
            click.echo(
                f"{name}: {len(came)} messages, none lost, doubled or overtaken; {waited} waited; "
                f"the first {BURST} came after {batch_ms:.1f} ms, the next after {next_ms:.1f} ms; "
                f"earliest {-verdict.early_ns / 1e6:.2f} ms after its token, latest "
                f"{verdict.late_ns / 1e6:.1f} ms; windows need {verdict.needed_ns / 1e6:.1f} ms: "
                f"{found}"
            )
    sys.exit(status)
