"""Measures whether arrival times keep conforming messages from waiting if the daemon runs late.

    src ==== limiter          nats-server: in the limiter's namespace

Publishers on many connections send messages that conform to the bucket of one topic. Meanwhile the
daemon runs late: more busy processes than processors compete with it, or it is stopped for 200 ms
once in a while, and has priority otherwise. So every message that waits does so because the daemon
read it late.

How late busy processes make the daemon depends on the host: a daemon that needs less than its fair
share of a processor is soon woken. So processes are added until messages wait without stamps.

The stream is shaped (`testbed.late_daemon`). A capture of the arrivals is checked against rate and
depth (`beyond`, which must be 0).

If the host itself stood still (`testbed.beats`), messages may have been too old for their arrival
times to count, and the stream is sent again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from drld.model import NS_PER_S
from testbed import ETHERNET_HEADER, child, netns
from testbed.beats import Beats
from testbed.crew import Child, Crew, crew
from testbed.daemon import Daemon
from testbed.errors import DisturbedError, MeasurementError
from testbed.harness.progress import Progress
from testbed.late_daemon import (
    LIMITER,
    SETTLE_S,
    STILL_S,
    check_beats,
    compete,
    repeated,
    shape,
)
from testbed.messages.real.frames import TOPIC, Message, publication
from testbed.messages.servers import nats_server
from testbed.messages.tcp_segments import captured, of_equal_messages
from testbed.stamps import Recorder, beyond
from testbed.topology import build_line

READ = "read"
SOURCES = ("socket", "kernel", READ)
"""Sources of arrival times: drld's `timestamps` of a broker."""

ENOUGH = 0.01
"""If no larger share of the messages waits with `read`, busy processes are added."""
MOST_HOGS = 8
"""The most busy processes for each processor. With more, the daemon may get too little of it."""

STOP_S = 0.2
"""Time for which the daemon is stopped, s."""
_STOPPED_TOO_LONG_S = 0.22
_STOP_EVERY_S = 2.0

_LIMIT = "topic"
_ADDRESS = "10.1.1.1"
_PORT, _SERVER_PORT = 4222, 4223
_HEADERS = 20 + 32
"""Bytes of IPv4 and TCP with timestamps."""
_MESSAGE_BYTES = len(publication("nats", Message(0, 0, 0)))
_PATIENCE_S = 60.0
_LOOK_S = 0.1
_STILL_BESIDE_STOPS_S = 0.04


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream to publish, and the cause that makes the daemon late."""

    connections: int
    messages: int
    rate: int
    """Rate of the bucket, messages/s."""
    burst: int
    """Depth of the bucket, messages."""
    load: float
    """Rate of the stream, as a share of the bucket's."""
    hogs: int
    """Number of busy processes."""
    stops: bool
    """Whether the daemon is stopped once in a while."""

    @property
    def seconds(self) -> float:
        """Duration of the stream, s."""
        return self.messages / (self.rate * self.load)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The messages of one stream, by their fate."""

    source: str
    hogs: int
    """Number of busy processes."""
    sent: int
    beyond: int
    """Messages that did not conform when they arrived at the host."""
    arrived: int
    """Messages that the bucket has counted."""
    waited: int
    p99_ms: float
    """99th percentile of the access delay, over the last minute, ms."""
    stamped: int
    unstamped: int
    stops: int
    """The number of times that the daemon was stopped."""


async def compare(
    stream: Stream, sources: Sequence[str], repeat: int, progress: Progress
) -> dict[str, Any]:
    """Publish the stream with each source of arrival times in turn; the result as a document.

    If there are busy processes, `READ` gets one more for each processor until more than `ENOUGH` of
    its messages wait, or there are `MOST_HOGS`. Then the other sources get as many.

    Raises:
        MeasurementError: a process ended or did not answer.
    """

    async def runs(hogs: int, sources: Sequence[str]) -> list[dict[str, Any]]:
        beside = replace(stream, hogs=hogs)
        result = await repeated(beside, partial(_run, beside), sources, repeat, progress)
        found: list[dict[str, Any]] = result["runs"]
        return found

    found = latest = await runs(stream.hogs, sources)
    processors, hogs = len(os.sched_getaffinity(0)), stream.hogs
    while hogs and _too_few_wait(latest) and hogs + processors <= MOST_HOGS * processors:
        hogs += processors
        latest = await runs(hogs, [READ])
        found = found + latest
    others = [source for source in sources if source != READ]
    if hogs > stream.hogs and others:
        found = found + await runs(hogs, others)
    return {"stream": asdict(stream), "runs": found}


def _too_few_wait(runs: Sequence[dict[str, Any]]) -> bool:
    """Whether runs are with `READ`, and no more than `ENOUGH` of their messages waited."""
    read = [run for run in runs if run["source"] == READ]
    arrived = sum(run["arrived"] for run in read)
    return bool(read) and sum(run["waited"] for run in read) <= ENOUGH * arrived


HEADER = ("source", "hogs", "arrived", "waited", "share", "p99, ms", "beyond", "unstamped", "stops")
"""Columns of `rows`."""


def rows(result: dict[str, Any]) -> list[list[str]]:
    """A line for each run, and for all of a source beside as many busy processes."""
    runs = result["runs"]
    return [
        [
            run["source"], f"{run['hogs']}", f"{run['arrived']:,}", f"{run['waited']:,}",
            f"{run['waited'] / max(run['arrived'], 1):.3%}", f"{run['p99_ms']:.2f}",
            f"{run['beyond']}", f"{run['unstamped']:,}", f"{run['stops']}",
        ]
        for run in [*runs, *_totals(runs)]
    ]  # fmt: skip


def _totals(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of each source and number of busy processes as one, if there are several; with the
    worst delay."""
    totals = []
    for source, hogs in dict.fromkeys((run["source"], run["hogs"]) for run in runs):
        those = [run for run in runs if (run["source"], run["hogs"]) == (source, hogs)]
        sums = {key: sum(run[key] for run in those) for key in those[0] if key != "source"}
        worst = max(run["p99_ms"] for run in those)
        totals.append({**sums, "source": f"all {source}", "hogs": hogs, "p99_ms": worst})
    return totals if len(totals) < len(runs) else []


async def _run(stream: Stream, source: str, progress: Progress) -> Outcome:
    with netns.workspace() as state, _beats(stream) as beats:
        return await _carry_out(stream, source, state, beats, progress)


@contextlib.contextmanager
def _beats(stream: Stream) -> Iterator[Beats]:
    """Beats with the priority of the daemon."""
    if stream.stops:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        beats = Beats()
        with beats:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            yield beats
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


async def _carry_out(
    stream: Stream, source: str, state: Path, beats: Beats, progress: Progress
) -> Outcome:
    progress.step("building")
    build_line(LIMITER)
    limiter = netns.namespace(LIMITER)
    with contextlib.ExitStack() as stack:
        stack.enter_context(nats_server(state, _SERVER_PORT, namespace=limiter))
        async with crew(state) as members:
            daemon = _daemon(state, stream, source)
            daemon.launch(members)
            await daemon.ready()
            if stream.stops:  # Nothing else is to make it late.
                os.sched_setscheduler(daemon.pid, os.SCHED_RR, os.sched_param(1))
            publishers = await _publishers(stream, members)
            size = ETHERNET_HEADER + _HEADERS + _MESSAGE_BYTES
            shape(stream.rate * size * 8, stream.burst * size)
            packets = 2 * stream.messages + 10 * stream.connections
            recorder = netns.within(limiter, lambda: Recorder("up", packets))
            stack.callback(recorder.close)
            before = (await daemon.ask(f"/v1/limits/{_LIMIT}"))["arrived_packets"]
            compete(members, stream.hogs, stream.seconds)
            progress.step(f"{stream.messages} messages in {stream.seconds:.0f} s")
            beats.take()
            await publishers.send(time.monotonic_ns() + round(SETTLE_S * 1e9))
            stops = await _stop_until(publishers, daemon, stream)
            progress.step("counting")
            report = await _counted(daemon, before + stream.messages)
            check_beats(beats, _STILL_BESIDE_STOPS_S if stream.stops else STILL_S)
            counters = (await daemon.ask("/v1/status"))["datapath"]["counters"]
            if recorder.missed():
                raise MeasurementError(f"{recorder.missed()} packets were not captured")
            arrivals = _arrivals(recorder)
            if len(arrivals) != stream.messages:
                raise MeasurementError(f"the capture has {len(arrivals)} messages")
    waits = report["waits"]
    return Outcome(
        source=source,
        hogs=stream.hogs,
        sent=stream.messages,
        beyond=beyond(((at_ns, 1) for at_ns in arrivals), stream.rate, stream.burst),
        arrived=report["arrived_packets"] - before,
        waited=waits["waited"],
        p99_ms=waits["p99_s"] * 1000,
        stamped=counters["messages_stamped"],
        unstamped=counters["messages_unstamped"],
        stops=stops,
    )


def _arrivals(recorder: Recorder) -> list[int]:
    """The time at which each message arrived at the host, ns; repeated segments change nothing."""
    of_client = defaultdict(list)
    for client, segment in captured(recorder.packets(), _PORT):
        of_client[client].append(segment)
    return [at_ns for it in of_client.values() for at_ns in of_equal_messages(it, _MESSAGE_BYTES)]


async def _publishers(stream: Stream, members: Crew) -> Child:
    """The publishers, connected; each publishes in its turn."""
    gap_ns, count = NS_PER_S / (stream.rate * stream.load), stream.connections
    job = {
        "protocol": "nats",
        "addresses": [(_ADDRESS, _PORT)],
        "place_of": [0] * count,
        "schedule": [(int(each * gap_ns), each % count) for each in range(stream.messages)],
    }
    namespace, module = netns.namespace("src"), "messages.real.load"
    publishers = await members.start_module("publishers", namespace, module, job, "publish")
    await publishers.receive(_PATIENCE_S)
    return publishers


async def _stop_until(publishers: Child, daemon: Daemon, stream: Stream) -> int:
    """Stop the daemon once in a while until all messages are sent; return how many times.

    Raises:
        DisturbedError: it was stopped for longer than was meant.
    """
    stops = 0
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            nonlocal stops
            while True:
                await trio.sleep(_STOP_EVERY_S)
                stopped_s = await trio.to_thread.run_sync(_stop, daemon.pid)
                if stopped_s > _STOPPED_TOO_LONG_S:
                    raise DisturbedError(f"the daemon was stopped for {stopped_s * 1000:.0f} ms")
                stops += 1

        if stream.stops:
            nursery.start_soon(stop)
        await publishers.receive(stream.seconds + _PATIENCE_S)
        nursery.cancel_scope.cancel()
    return stops


def _stop(pid: int) -> float:
    """Stop a process for `STOP_S`, in a thread that has priority; return how long it was."""
    child.raise_priority()
    began_ns = time.monotonic_ns()
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(STOP_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    return (time.monotonic_ns() - began_ns) / NS_PER_S


def _daemon(state: Path, stream: Stream, source: str) -> Daemon:
    """A daemon in front of the broker, with a bucket for the topic."""
    document = {
        "limiter": {"name": LIMITER, "listen": "127.0.0.1:7946"},
        "broker": [
            {
                "name": "nats",
                "protocol": "nats",
                "listen": f"{_ADDRESS}:{_PORT}",
                "server": f"127.0.0.1:{_SERVER_PORT}",
                "timestamps": source,
            }
        ],
        "limit": [
            {
                "id": 1,
                "name": _LIMIT,
                "rate": f"{stream.rate}/s",
                "burst": f"{stream.burst}msg",
                "allocator": "static",
                "match": {"broker": "nats", "topic": TOPIC["nats"]},
            }
        ],
    }
    return Daemon(document, state, netns.namespace(LIMITER))


async def _counted(daemon: Daemon, messages: int) -> dict[str, Any]:
    """The report of the limit once so many messages have come and none waits.

    Raises:
        MeasurementError: that takes too long.
    """
    report: dict[str, Any] = {}
    with trio.move_on_after(_PATIENCE_S):
        while True:
            report = await daemon.ask(f"/v1/limits/{_LIMIT}")
            if report["arrived_packets"] >= messages and not report["waits"]["waiting"]:
                return report
            await trio.sleep(_LOOK_S)
    raise MeasurementError(f"{messages} messages were sent: {report}")
