"""`python -m testbed.messages shift`: shares follow publishers that move from a broker to another.

Two nats-servers, each behind a daemon, share the envelope of one topic. Most publishers are at the
first, and then move to the second. The plot shows how long messages wait before and after the parts
of the envelope have followed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import click
import trio

from drld.model import NS_PER_S
from testbed import child, netns
from testbed.harness.ledger import RESULT
from testbed.interrupt import run_to_end
from testbed.messages.real.stage import Limit, Stage, carried, staged
from testbed.options import OUT

RATE, BURST = 200, 20
"""Rate and burst of the envelope, messages/s and messages."""
DEMAND = 0.7
"""Rate of the messages, over that of the envelope."""
MAJORITY = 0.8
"""Part of the publishers that are at one broker."""
PUBLISHERS = 20
_LOOK_S = 0.25
_ALLOCATOR = {"name": "adaptive", "window": 3.0, "step": 0.5}
"""A shorter history than the default of 10 s, for a short demonstration."""
_BROKERS = 2


def schedule(rng: Random, seconds: float, moves_s: float) -> list[tuple[int, int]]:
    """The sending times, ns, each with its publisher; a publisher is a Poisson process.

    Publisher n + PUBLISHERS is publisher n after it has moved to the other broker.
    """
    gap_s = PUBLISHERS / (DEMAND * RATE)
    found = []
    for publisher in range(PUBLISHERS):
        at_s = rng.expovariate(1 / gap_s)
        while at_s < seconds:
            found.append((int(at_s * NS_PER_S), publisher + PUBLISHERS * (at_s >= moves_s)))
            at_s += rng.expovariate(1 / gap_s)
    return sorted(found)


def places() -> list[int]:
    """The broker of each publisher, before the move and after it."""
    majority = round(MAJORITY * PUBLISHERS)
    before = [int(publisher >= majority) for publisher in range(PUBLISHERS)]
    return before + [1 - place for place in before]


async def _look(stage: Stage, parts: list[list[tuple[int, float]]]) -> None:
    """Take down each broker's part of the rate, messages/s, with its time, until cancelled."""
    while True:
        for number, its in enumerate(parts):
            its.append((time.monotonic_ns(), (await stage.limit(number))["fill_rate_bps"]))
        await trio.sleep(_LOOK_S)


async def measured(rng: Random, directory: Path, seconds: float, moves_s: float) -> dict[str, Any]:
    """Have the messages sent; what became of them, in seconds since the begin."""
    planned, place_of = schedule(rng, seconds, moves_s), places()
    limit = Limit(RATE, BURST, _ALLOCATOR)
    parts: list[list[tuple[int, float]]] = [[] for _ in range(_BROKERS)]
    async with staged(directory, "nats", _BROKERS, limit) as stage, trio.open_nursery() as nursery:
        nursery.start_soon(_look, stage, parts)
        came, lags = await carried(stage, place_of, planned)
        nursery.cancel_scope.cancel()
    begin_ns = min(due_ns for _, _, due_ns, _ in came) - planned[0][0]

    def since_s(at_ns: int) -> float:
        return (at_ns - begin_ns) / NS_PER_S

    delays: list[list[tuple[float, float]]] = [[] for _ in range(_BROKERS)]
    for publisher, _, due_ns, at_ns in sorted(came, key=lambda it: it[2]):
        delays[place_of[publisher]].append((since_s(due_ns), (at_ns - due_ns) / NS_PER_S))
    return {
        "seconds": seconds, "moves_s": moves_s, "rate": RATE, "burst": BURST,
        "messages": len(came), "late_s": max(lags) / NS_PER_S, "delays_s": delays,
        "parts": [[(since_s(at_ns), part) for at_ns, part in its] for its in parts],
    }  # fmt: skip


def phases(result: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Names of parts of the run, each with its begin and end, s."""
    moves_s, third_s = result["moves_s"], (result["seconds"] - result["moves_s"]) / 3
    return [
        ("before publishers move", moves_s - third_s, moves_s),
        ("after it", moves_s, moves_s + third_s),
        ("shares have followed", result["seconds"] - third_s, result["seconds"]),
    ]


def slowest(delays: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """The 99th percentile of the delays of messages that were sent then, s; 0 without any."""
    found = sorted(delay for at_s, delay in delays if begin_s <= at_s < end_s)
    return found[int(0.99 * len(found))] if found else 0.0


def table(result: dict[str, Any]) -> str:
    """The delays as a table for people."""
    lines = [f"{'p99 of the delay, ms':>24} {'broker 1':>10} {'broker 2':>10}"]
    for name, begin_s, end_s in phases(result):
        values = [1000 * slowest(its, begin_s, end_s) for its in result["delays_s"]]
        lines.append(f"{name:>24} " + " ".join(f"{value:>10.0f}" for value in values))
    return "\n".join(lines)


@click.command()
@click.option("--seconds", type=click.FloatRange(6), default=32.0, show_default=True)
@click.option("--moves", type=click.FloatRange(2), default=12.0, show_default=True,
              help="When publishers move, s.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "shift", show_default=True)
def shift(*, seconds: float, moves: float, out: Path) -> None:
    """Show how the parts of two brokers follow publishers that move."""
    from testbed.messages.plot_shift import draw

    child.raise_priority()
    out.mkdir(parents=True, exist_ok=True)
    with netns.workspace() as directory:
        result = run_to_end(partial(measured, Random(1), directory, seconds, moves))
    (out / RESULT).write_text(json.dumps(result) + "\n", encoding="utf-8")
    click.echo(f"two brokers, one topic of {RATE} messages/s: {result['messages']} messages, none "
               "lost, doubled or overtaken")  # fmt: skip
    click.echo(table(result))
    click.echo(f"{draw(result, out / 'messages.png')}")
