"""The common parts of measurements that make a daemon late, and send it a conforming stream.

Busy processes compete with the daemon. The sender runs late as well, so the kernel's token bucket
filter shapes the stream.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from drld.model import NS_PER_S
from drld.police.arrival_time import LATEST_NS
from testbed import netns
from testbed.attempts import undisturbed
from testbed.beats import Beats
from testbed.crew import Crew
from testbed.errors import DisturbedError
from testbed.harness.progress import Progress

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LIMITER = "limiter"
"""The daemon's name, and its namespace's role."""
SETTLE_S = 0.5
"""Time from the order to send until the first packet, s."""
STILL_S = LATEST_NS / 2 / NS_PER_S
"""Longest stop of a processor after which no packet is too old for its arrival time, s."""
_SHAPED = 3
"""The stream is shaped to this part of the depth, as packets move closer together on the way."""
_SHAPER_QUEUE = 10_000_000
_BUSY = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"


async def repeated(
    stream: DataclassInstance,
    run: Callable[[str, Progress], Awaitable[DataclassInstance]],
    sources: Sequence[str],
    repeat: int,
    progress: Progress,
) -> dict[str, Any]:
    """The outcomes of a stream with each source of arrival times in turn, as a document."""
    outcomes = []
    for number in range(1, repeat + 1):
        for source in sources:
            progress.begin(f"{source} {number}/{repeat}")
            outcomes.append(await undisturbed(partial(run, source, progress), progress.note))
    return {"stream": asdict(stream), "runs": [asdict(outcome) for outcome in outcomes]}


def compete(members: Crew, number: int, seconds: float) -> None:
    """Start busy processes beside the daemon, for the time of a stream."""
    busy = [sys.executable, "-c", _BUSY.format(seconds=seconds + SETTLE_S)]
    for each in range(number):
        members.start(f"busy{each}", netns.namespace(LIMITER), busy)


def shape(rate_bps: int, depth_bytes: int) -> None:
    """Have the stream leave its source as a bucket of this rate and depth lets it pass."""
    tbf = f"rate {rate_bps}bit burst {depth_bytes // _SHAPED} limit {_SHAPER_QUEUE}"
    command = ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *tbf.split()]
    netns.run(["ip", "netns", "exec", netns.namespace("src"), *command])


def check_beats(beats: Beats, most_s: float = STILL_S) -> None:
    """Raise a DisturbedError if a processor has stood still for too long since the last look."""
    if (late_s := beats.take()) > most_s:
        raise DisturbedError(f"a processor stood still for {late_s * 1000:.0f} ms")
