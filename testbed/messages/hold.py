"""`python -m testbed.messages hold`: other topics while what waits for one topic fills `hold`.

A client publishes on a topic without a limit, and a subscriber at the broker measures the delay of
each message from its scheduled time. Then publishers flood a limited topic until drld reads them no
more, and TCP pushes back. The delays before and during that are compared, in rounds with a daemon
of their own.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click
import trio

from drld.model import NS_PER_S
from testbed import child, netns
from testbed.chaos.message_clients import Client, connected
from testbed.errors import MeasurementError
from testbed.harness.markdown import aligned, prose, table
from testbed.harness.page import Page
from testbed.interrupt import run_to_end
from testbed.messages.real.frames import TOPIC, Message, Protocol, delivery, unconfirmed
from testbed.messages.real.oracle_command import BROKERS
from testbed.messages.real.stage import Limit, Stage, staged
from testbed.provenance import conditions, head

GOAL = 1.2
"""The p99 of other topics may grow by a fifth."""
RATE, BURST, HOLD = 100, 26, "1MiB"
"""The limit of the flooded topic. Within a phase its bucket lets out a small part of `HOLD`."""
_OTHER: dict[Protocol, str] = {"mqtt": "other", "nats": "other"}
_OTHER_RATE = 500
"""Messages/s of the other topic: a few thousand in a phase, so that a p99 is of dozens."""
_FLOODERS, _ROOM_BYTES = 4, 4096
"""Connections of the flood, and the kernel's bytes for each: little waits outside of drld."""
_SETTLE_S, _LOOK_S, _PATIENCE_S = 1.0, 0.5, 60.0
_PAGE = Page(
    "messages-hold", "Other topics while one topic's messages fill `hold`",
    "sudo .venv/bin/python -m testbed.messages hold --docs", "../docs/messages-operations.md",
    list(BROKERS),
)  # fmt: skip
HEADER = (
    *("round", "p99 before, ms", "p99 while full, ms", "ratio"),
    *("waiting", "flood before full, msg/s", "while full, msg/s"),
)
"""Columns of a table. `waiting`: messages of the flood."""


@dataclass(frozen=True, slots=True)
class Round:
    """The delays of the other topic in one round."""

    before_s: float
    """Their 99th percentile before the flood."""
    full_s: float
    """Their 99th percentile while `hold` is full."""
    waiting: int
    """Messages of the flood that waited at the end."""
    free: float
    """The rate at which the flood could send until `hold` was full, messages/s."""
    held_back: float
    """Its rate while `hold` was full, messages/s."""

    @property
    def ratio(self) -> float:
        """The p99 while `hold` is full, over the one before."""
        return self.full_s / self.before_s


class Delays:
    """The delays of messages of the other topic, by their scheduled times."""

    def __init__(self) -> None:
        self._found: list[tuple[int, int]] = []

    def add(self, due_ns: int, came_ns: int) -> None:
        """Take down a message that was due and came at these times."""
        self._found.append((due_ns, came_ns))

    async def receive(self, protocol: Protocol, client: Client) -> None:
        """Take down the delays of what comes, until cancelled."""
        async for frame in client.receive():
            found = delivery(protocol, frame)
            if found is not None and found.message is not None:
                self.add(found.message.scheduled_ns, time.monotonic_ns())

    def p99_s(self, begin_ns: int, end_ns: int) -> float:
        """Their 99th percentile, of messages that were due in this time.

        Raises:
            MeasurementError: there are too few.
        """
        found = sorted(at - due for due, at in self._found if begin_ns <= due < end_ns)
        if len(found) < (end_ns - begin_ns) / NS_PER_S * _OTHER_RATE / 2:
            raise MeasurementError(f"{len(found)} messages of the other topic came")
        return found[int(0.99 * len(found))] / NS_PER_S


async def _publish(protocol: Protocol, client: Client) -> None:
    """Publish on the other topic at its rate, until cancelled."""
    begin_ns, number = time.monotonic_ns(), 0
    while True:
        due_ns = begin_ns + number * NS_PER_S // _OTHER_RATE
        await trio.sleep(max(due_ns - time.monotonic_ns(), 0) / NS_PER_S)
        payload = Message(0, number, due_ns).payload()
        await client.send(unconfirmed(protocol, _OTHER[protocol], payload))
        number += 1


async def _round(directory: Path, protocol: Protocol, seconds: float) -> Round:
    """Measure a round with a daemon of its own."""
    async with staged(directory, protocol, 1, Limit(RATE, BURST), HOLD) as stage:
        return await _measured(stage, protocol, seconds)


async def _measured(stage: Stage, protocol: Protocol, seconds: float) -> Round:
    """Measure one round.

    Raises:
        MeasurementError: messages of the other topic do not come.
    """
    delays, sent = Delays(), [0]

    async def flood(own: int) -> None:
        async with connected(protocol, stage.fronts[0], f"f{own}", room=_ROOM_BYTES) as client:
            while True:
                payload = Message(own, sent[0], time.monotonic_ns()).payload()
                await client.send(unconfirmed(protocol, TOPIC[protocol], payload))
                sent[0] += 1

    async with (
        connected(protocol, stage.servers[0], "counter") as counter,
        connected(protocol, stage.fronts[0], "other") as other,
        trio.open_nursery() as nursery,
    ):
        await counter.subscribe(_OTHER[protocol])
        nursery.start_soon(delays.receive, protocol, counter)
        nursery.start_soon(_publish, protocol, other)
        await trio.sleep(_SETTLE_S)
        before_ns = time.monotonic_ns()
        await trio.sleep(seconds)
        flood_ns = time.monotonic_ns()
        for own in range(1, _FLOODERS + 1):
            nursery.start_soon(flood, own)
        with trio.fail_after(_PATIENCE_S):
            free, now = 0.0, 2 * RATE + 1.0
            while now > 2 * RATE:
                before = sent[0]
                await trio.sleep(_LOOK_S)
                now = (sent[0] - before) / _LOOK_S
                free = max(free, now)
        full_ns, before = time.monotonic_ns(), sent[0]
        await trio.sleep(seconds)
        end_ns, more = time.monotonic_ns(), sent[0] - before
        waiting = (await stage.waits(0))["waiting"]
        await trio.sleep(_SETTLE_S)
        nursery.cancel_scope.cancel()
    return Round(
        delays.p99_s(before_ns, flood_ns),
        delays.p99_s(full_ns, end_ns),
        *(waiting, free, more / seconds),
    )


def rows(rounds: list[Round]) -> list[list[str]]:
    """A line for each round, and one for all."""
    found = [
        [
            f"{number}", f"{1000 * it.before_s:.2f}", f"{1000 * it.full_s:.2f}",
            f"{it.ratio:.2f}", f"{it.waiting:,}", f"{it.free:,.0f}", f"{it.held_back:,.0f}",
        ]
        for number, it in enumerate(rounds, 1)
    ]  # fmt: skip
    before_s, full_s, ratio = (
        statistics.median(values)
        for values in zip(*((it.before_s, it.full_s, it.ratio) for it in rounds), strict=True)
    )
    kept = "ok" if ratio <= GOAL else "SHORT OF"
    return [
        *found,
        ["median", f"{1000 * before_s:.2f}", f"{1000 * full_s:.2f}",
         f"{ratio:.2f} {kept} ≤ {GOAL}", "", "", ""],
    ]  # fmt: skip


@click.command()
@click.option("--broker", type=click.Choice([*BROKERS]), multiple=True, help="Default: both.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=6.0, show_default=True,
              help="Before the flood, and while `hold` is full.")  # fmt: skip
@click.option("--docs", is_flag=True, help="Write the result into results/messages-hold.md.")
def hold(*, broker: tuple[str, ...], rounds: int, seconds: float, docs: bool) -> None:
    """Compare the delays of other topics before and while one topic's messages fill `hold`."""
    child.raise_priority()
    how = prose(
        f"{conditions(head(quick=False))}. {_OTHER_RATE} messages/s of a topic without a limit; a "
        f"limit of {RATE}/s on another topic, whose publishers send as fast as they may; hold = "
        f"{HOLD}; phases of {seconds:g} s."
    )
    sections = {}
    with netns.workspace() as directory:
        for name in broker or BROKERS:
            work = partial(_round, directory, BROKERS[name], seconds)
            found = [run_to_end(work) for _ in range(rounds)]
            click.echo(f"{name}\n{aligned([HEADER, *rows(found)], left=1)}")
            sections[name] = "\n".join([f"## {name}", "", how, "", *table(HEADER, rows(found))])
    if docs:
        click.echo(f"{_PAGE.write(sections)}")
