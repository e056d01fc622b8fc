"""The faults of `scripts/chaos requests`, and how each is done to a fleet."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from drld.requests.front.deltas import LONGEST_REST_S
from testbed.chaos import clocks
from testbed.chaos.keyed_fleet import CAPACITY, DELTAS_PORT, NODES, Scene
from testbed.errors import MeasurementError

ROUND_S = 0.05
REPEAT_S = 4 * ROUND_S
"""Time after which a limiter repeats news (`drld.requests.keyed_limit.REPEAT_ROUNDS`), s."""
DELAY_S = 0.01
"""The delay of news without a fault, s: two milliseconds, and the daemons' turns."""
RARE = 0.001
HOSTILE_PER_S = 2_000
_CROWD = 2 * CAPACITY // 3
"""Requests that wait for a daemon while it stands still."""
_CROWD_S = 1.0
"""Before it goes on, they come."""
_HOUR_S = 3600
_NEAR_S = 60.0
_CLOCK = "{own}.clock"
_TWICE = (
    "add table ip twice",
    "add chain ip twice some { type filter hook output priority 0; }",
    f"add rule ip twice some udp dport {DELTAS_PORT} numgen random mod 4 == 0 dup to 127.0.0.1 "
    "device lo",
)
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Fault:
    """A fault, which lasts some seconds."""

    title: str
    loss: float = 0.0
    twice: bool = False
    cut: bool = False
    kill: bool = False
    freeze: bool = False
    clocks: bool = False
    hostile: str = ""
    """A kind of `testbed.chaos.forger`'s."""

    @property
    def foreign(self) -> bool:
        """Whether others than the daemons send."""
        return self.twice or bool(self.hostile)


FAULTS = {
    "none": Fault("nothing is done"),
    "loss-20": Fault("20 % of datagrams are lost", loss=0.2),
    "loss-40": Fault("40 % of datagrams are lost", loss=0.4),
    "duplicates": Fault("a quarter of the datagrams comes twice", twice=True),
    "partition": Fault("one limiter is cut off from the others", cut=True),
    "kill": Fault("a daemon is killed, and starts again", kill=True),
    "freeze": Fault("a daemon stands still, requests wait for it, and it goes on", freeze=True),
    "clocks": Fault("a wall clock jumps an hour ahead, another back", clocks=True),
    "corrupt": Fault(f"{HOSTILE_PER_S:,} corrupted deltas a second", hostile="corrupt"),
    "forge": Fault(f"{HOSTILE_PER_S:,} forged deltas and handshakes a second", hostile="forge"),
    "replay": Fault(f"{HOSTILE_PER_S:,} recorded deltas a second", hostile="replay"),
}


def news_s(fault: Fault, slowest_s: float) -> float:
    """The longest time in which news get through a fault, but once in a thousand times."""
    in_a_row = math.ceil(math.log(RARE) / math.log(fault.loss)) if fault.loss else 0
    rest_s = LONGEST_REST_S if fault.hostile else 0.0
    return DELAY_S + rest_s + slowest_s + in_a_row * REPEAT_S


def environment(fault: Fault, directory: Path) -> dict[str, str]:
    """The environment that daemons need for a fault."""
    if not fault.clocks:
        return {}
    for own in range(NODES):
        clocks.set_offset(directory / _CLOCK.format(own=own), 0)
    return clocks.environment(clocks.library(directory), directory / _CLOCK)


@asynccontextmanager
async def done(fault: Fault, on: Scene, seconds: float, seed: int) -> AsyncIterator[None]:
    """The fault, while the context lasts: about so many seconds."""
    if fault.loss:
        on.lose(fault.loss)
    if fault.twice:
        for line in _TWICE:
            on.inside("nft", line)
    if fault.cut:
        on.cut(2)
    if fault.clocks:
        await _set_clocks(on, _HOUR_S, -_HOUR_S)
    if fault.kill:
        on.gone_bytes += await on.said_bytes(0)
        await on.kill(0)
    async with trio.open_nursery() as nursery:
        if fault.hostile:
            nursery.start_soon(_attack, on, fault.hostile, seconds, seed)
        if fault.freeze:
            on.send(0, signal.SIGSTOP)
            nursery.start_soon(_crowd, on, max(seconds - _CROWD_S, 0.0))
        yield
        if fault.freeze:
            on.thawed_s[0] = time.monotonic()
            on.send(0, signal.SIGCONT)
    if fault.clocks:
        await _set_clocks(on, 0, 0)
    if fault.twice:
        on.inside("nft", "delete table ip twice")
    on.heal()
    if fault.kill:
        await on.start(0)


async def _crowd(on: Scene, after_s: float) -> None:
    """Many requests at once, for a daemon that stands still."""
    await trio.sleep(after_s)
    async with trio.open_nursery() as nursery:
        for _ in range(_CROWD):
            nursery.start_soon(on.ask, 0, "alice")


async def _set_clocks(on: Scene, *offsets_s: int) -> None:
    """Have the wall clocks of the first daemons off by so much.

    Raises:
        MeasurementError: one is not, so the fault did not happen.
    """
    for own, offset_s in enumerate(offsets_s):
        clocks.set_offset(on.directory / _CLOCK.format(own=own), offset_s)
        async with (
            on.client(own) as client,
            client.stream("GET", "/v1/limits/user/trace") as trace,
        ):
            line = await anext(trace.aiter_lines())
        if abs(json.loads(line)["t"] - time.time() - offset_s) > _NEAR_S:
            raise MeasurementError(f"l{own}: its clock did not jump by {offset_s} s")


async def _attack(on: Scene, kind: str, seconds: float, seed: int) -> None:
    """Send hostile datagrams, as from the limiters."""
    job = {
        "kind": kind, "seconds": seconds, "per_s": HOSTILE_PER_S, "port": DELTAS_PORT,
        "limits": 1, "deltas": True, "seed": seed,
    }  # fmt: skip
    command = ["ip", "netns", "exec", on.namespace, sys.executable, "-m", "testbed.chaos.forger"]
    answer = await trio.run_process(
        command, stdin=json.dumps(job).encode() + b"\n", capture_stdout=True, cwd=_ROOT
    )
    on.hostile = int(json.loads(answer.stdout)["result"])
