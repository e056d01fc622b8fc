"""The whole cost of a message in a daemon with few limits and with many, each on its own topic.

The processor time is the kernel's account of the daemon's process: messages with their system
calls, and the daemon's ticks. All daemons get the same number of messages, by turns and in the same
batches, each on a random topic: as fast as they take them, and at a rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from random import Random
from typing import NamedTuple

from testbed.bench.hop.client import PROTOCOL
from testbed.bench.hop.measure import PACED, PROCESSOR
from testbed.bench.hop.proxies import Hop, broker, drld, hop
from testbed.bench.lanes import Setting
from testbed.bench.summary import Row
from testbed.messages.real.frames import SIZE, unconfirmed

_FIRST_PORT = 2001


class _Load(NamedTuple):
    """The messages of a round."""

    messages: int
    batch: int
    """Messages that a publisher sends at once."""
    rate: int | None = None
    """Messages a second; None: as many as the daemon takes."""


def rows(setting: Setting, numbers: Sequence[int], ratio: str, goal: float) -> list[Row]:
    """The cost of a message in daemons with these numbers of limits, first the fewest; the ratio of
    each to the first has this name and goal."""
    rounds, flood = setting.choose(15, 3), setting.choose(50_000, 5_000)
    loads = {
        "single messages": _Load(flood, 1),
        "batches of 10": _Load(flood, 10),
        f"{PACED:,}/s, single": _Load(setting.choose(6_000, 1_500), 1, PACED),
    }
    times: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as stack:
        stack.enter_context(broker(setting))
        hops = {
            number: stack.enter_context(_daemon(setting, number, _FIRST_PORT + place))
            for place, number in enumerate(numbers)
        }
        for round_ in range(rounds + 1):
            setting.progress.step(f"daemons, round {round_} of {rounds}")
            for number in numbers if round_ % 2 == 0 else reversed(numbers):
                for name, load in loads.items():
                    taken = _sent(hops[number], load, _pieces(Random(round_), number, load))
                    if round_:  # The first round warms up.
                        times.setdefault((name, number), []).append(1e6 * taken / load.messages)
    found = []
    for name in loads:
        group, few = f"the daemon, {name}", times[name, numbers[0]]
        for number in numbers:
            case, its = f"{number:,} topics", times[name, number]
            found.append(Row(group, case, *PROCESSOR, its))
            if number != numbers[0]:
                ratios = [many / one for many, one in zip(its, few, strict=True)]
                found.append(Row(group, case, ratio, "", ratios, below=goal))
    return found


def _daemon(setting: Setting, number: int, port: int) -> AbstractContextManager[Hop]:
    topics = [_topic(place) for place in range(number)]
    return hop(setting, f"drld, {number:,} topics", port, drld(setting.state, port, topics, "auto"))


def _sent(to: Hop, load: _Load, pieces: Sequence[bytes]) -> float:
    """Send these; return the processor time that they took, s."""
    before = to.processor_s()
    to.publishers.send(pieces, load.rate)
    return to.processor_s() - before


def _pieces(rng: Random, number: int, load: _Load) -> list[bytes]:
    """Messages on random topics of so many, in batches."""
    payload = bytes(SIZE)
    return [
        b"".join(
            unconfirmed(PROTOCOL, _topic(rng.randrange(number)), payload) for _ in range(load.batch)
        )
        for _ in range(load.messages // load.batch)
    ]


def _topic(place: int) -> str:
    return f"city.{place}.traffic"
