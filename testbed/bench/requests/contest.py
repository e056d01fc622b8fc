"""`scripts/bench requests`: contestants in turn, in one run, on the same requests.

A round gives each contestant the same requests, one after the other; every other round goes
backward. Times are medians over the rounds, and ratios are medians of the ratios within a round, so
that a host that is busy for a while changes them little. The client and the servers have a
processor each. Python's collector starts as it does in a daemon.
"""

from __future__ import annotations

import gc
import os
import pkgutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeAlias

import trio

from drld.daemon.daemon import YOUNG_OBJECTS
from testbed.bench.lanes import Setting
from testbed.bench.requests import rows
from testbed.bench.requests.load import Asked, Load, uniform, zipf
from testbed.bench.summary import Outcome, Row

TIME, RATIO = ("a decision", "us"), ("of the first's time", "")
P99, REFUSED = ("p99", "us"), ("refused", "%")
CONTROL = ("p99 of a bare server", "us")
LOAD = ("load", "1/s")


class Result(NamedTuple):
    """The work of a contestant on the requests of a slice."""

    seconds: float
    refused: int
    latencies: Sequence[float] = ()
    """The time of each request, s; empty: requests are not measured one by one."""
    per_s: float | None = None
    """The rate of requests whose times no answer moves, 1/s; None: each waits for an answer."""
    control: Sequence[float] = ()
    """The times of the same requests with a server that decides nothing, s."""


Slice: TypeAlias = Callable[[Sequence[Asked]], Result]
"""Decides requests."""


class Scene(NamedTuple):
    """The conditions at the start of a contestant."""

    keys: int
    """The number of keys with a bucket before the requests begin; those to refuse are empty."""
    state: Path
    """A directory for sockets and logs."""
    cpu: int
    """The processor of servers."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table of contestants."""

    group: str
    case: str
    make: Callable[[Scene], AbstractContextManager[Slice]]
    """Starts the contestant, which ends with the context."""
    place: int
    """The place in its group; the others are compared with the first."""
    below: float | None = None
    """The goal for a decision, us."""
    p99_below: float | None = None
    """The goal for the 99th percentile, us."""
    note: str = ""
    """The settings of the contestant."""
    requests: tuple[int, int] = (1_000, 300)
    """The number of requests of a slice, and of a quick one."""


def entries() -> list[Entry]:
    """All contestants, by group."""
    found = [
        import_module(f"{rows.__name__}.{module.name}").ENTRY
        for module in pkgutil.iter_modules(rows.__path__)
    ]
    return sorted(found, key=lambda entry: (entry.group, entry.place))


async def measure(setting: Setting) -> Outcome:
    """All contestants under each load."""
    keys = setting.choose(1_000_000, 20_000)
    found: list[Row] = []
    notes = [f"{keys:,} keys have a bucket before a load begins"]
    contestants = entries()
    loads, scene = (uniform(keys), zipf(keys)), Scene(keys, setting.state, setting.cpus[1])
    for group in dict.fromkeys(entry.group for entry in contestants):
        some = [entry for entry in contestants if entry.group == group]
        with ExitStack() as stack:
            stack.enter_context(_collector())
            slices = []
            for entry in some:
                setting.progress.step(f"starting {entry.case}")
                slices.append(stack.enter_context(entry.make(scene)))
            for load in loads:
                found += await _rounds(setting, load, some, slices)
    notes += [f"{entry.case}: {entry.note}" for entry in contestants if entry.note]
    return Outcome(found, TIME[0], notes)


@contextmanager
def _collector() -> Iterator[None]:
    """Let Python's collector start as in a daemon, which pure decisions are part of."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _pinned(cpu: int) -> Iterator[None]:
    """Keep this thread on one processor: a client that polls would share that of its server."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _rounds(
    setting: Setting, load: Load, some: Sequence[Entry], slices: Sequence[Slice]
) -> list[Row]:
    rounds = setting.choose(15, 3)
    rng = Random(load.name)
    seen: list[list[tuple[Result, int]]] = [[] for _ in some]
    for number in range(rounds + 1):
        setting.progress.step(f"{some[0].group}, {load.name}: round {number} of {rounds}")
        asked = load.draw(rng, max(setting.choose(*entry.requests) for entry in some))
        order = range(len(some))
        for index in order if number % 2 == 0 else reversed(order):
            # Contestants do not yield, and who interrupts waits for one slice.
            await trio.lowlevel.checkpoint()
            mine = asked[: setting.choose(*some[index].requests)]
            with _pinned(setting.cpus[0]):
                result = slices[index](mine)
            # The first round warms up.
            if number:
                seen[index].append((result, len(mine)))
    times = [[1e6 * result.seconds / count for result, count in one] for one in seen]
    rows = []
    for entry, one, time in zip(some, seen, times, strict=True):
        row = partial(Row, f"{entry.group}, {load.name}", entry.case)
        rows.append(row(*TIME, time, below=entry.below))
        if entry is not some[0]:
            rows.append(row(*RATIO, [a / b for a, b in zip(time, times[0], strict=True)]))
        if one[0][0].latencies:
            rows.append(row(*P99, [_p99_us(it.latencies) for it, _ in one], below=entry.p99_below))
        if one[0][0].control:
            rows.append(row(*CONTROL, [_p99_us(it.control) for it, _ in one]))
        if loads := [it.per_s for it, _ in one if it.per_s is not None]:
            rows.append(row(*LOAD, loads))
        rows.append(row(*REFUSED, [100 * result.refused / count for result, count in one]))
    return rows


def _p99_us(times_s: Sequence[float]) -> float:
    return statistics.quantiles(times_s, n=100)[-1] * 1e6
