"""Measures whether arrival timestamps prevent drops by a daemon that runs late.

    src ==== limiter ==== sink

A stream of UDP packets conforms to the bucket of a daemon on the nfqueue datapath. Meanwhile more
busy processes than processors make the daemon wait. So every packet that the bucket drops is
dropped because the daemon read it late.

The stream is shaped (`testbed.late_daemon`). The arrivals at the limiter are recorded
(`testbed.stamps`) and checked against rate and depth (`beyond`, which must be 0).

If the host itself stood still (`testbed.beats`), packets may have been too old for their arrival
times to count. The same holds if the daemon had so little of a processor that packets queued for
longer. The stream is sent again.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from testbed import netns
from testbed.beats import Beats
from testbed.crew import crew
from testbed.daemon import Daemon
from testbed.errors import DisturbedError, MeasurementError
from testbed.harness.markdown import aligned
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
from testbed.stamps import Recorder, beyond
from testbed.topology import SINK, build_line
from testbed.udp import PORT

SOURCES = ("ebpf", "kernel", "read")
"""Sources of arrival times: drld's `packets.timestamps`."""

_LIMIT = "stream"
_HEADERS = 28
_SENT_BYTES = 8
_PATIENCE_S = 15.0
_LOOK_S, _QUIET_LOOKS = 0.1, 10


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream to send, and the load of the host."""

    rate_bps: int
    """Rate of the bucket, bits/s."""
    depth_bytes: int
    packet_bytes: int
    """Length of each IP packet, bytes."""
    load: float
    """Rate of the stream, as a share of the bucket's rate."""
    seconds: float
    busy: int
    """Number of busy processes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The packets of one stream by their fate."""

    source: str
    sent: int
    beyond: int
    """Packets that did not conform on arrival at the limiter."""
    arrived: int
    """Packets that arrived at the bucket."""
    dropped: int
    """Packets that the bucket dropped."""
    overflow: int
    """Packets that the kernel dropped at a full queue."""
    lost: int
    """Packets lost elsewhere."""
    stamped_ebpf: int
    stamped_kernel: int
    unstamped: int
    waited_ms: float
    """Mean time that the daemon waited for a processor, each time it waited."""


async def compare(
    stream: Stream, sources: Sequence[str], repeat: int, progress: Progress
) -> dict[str, Any]:
    """Run the stream with each source of arrival times in turn; return the result as a document.

    Raises:
        MeasurementError: a process ended or did not answer.
    """
    return await repeated(stream, partial(_run, stream), sources, repeat, progress)


def table(result: dict[str, Any]) -> str:
    """A result as a table for people."""
    heads = ["source", "arrived", "dropped", "share", "overflow", "lost", "beyond", "waited, ms"]
    counted = ("overflow", "lost", "beyond")
    rows = [
        [run["source"], f"{run['arrived']}", f"{run['dropped']}",
         f"{run['dropped'] / max(run['arrived'], 1):.2%}",
         *(f"{run[key]}" for key in counted), f"{run['waited_ms']:.2f}"]
        for run in result["runs"]
    ]  # fmt: skip
    return aligned([heads, *rows], left=1)


async def _run(stream: Stream, source: str, progress: Progress) -> Outcome:
    with netns.workspace() as state, Beats() as beats:
        return await _carry_out(stream, source, state, beats, progress)


async def _carry_out(
    stream: Stream, source: str, state: Path, beats: Beats, progress: Progress
) -> Outcome:
    progress.step("building")
    destination = build_line(LIMITER)
    packets_per_s = round(stream.rate_bps / 8 / stream.packet_bytes * stream.load)
    limiter = netns.namespace(LIMITER)
    with contextlib.ExitStack() as sockets:
        sockets.enter_context(netns.within(netns.namespace(SINK), _receiver))
        recorder = netns.within(
            limiter, lambda: Recorder("up", round(2 * packets_per_s * stream.seconds))
        )
        sockets.callback(recorder.close)
        async with crew(state) as members:
            daemon = _daemon(state, stream, source)
            daemon.launch(members)
            await daemon.ready()
            job = {
                "destination": destination,
                "rate": packets_per_s,
                "seconds": stream.seconds,
                "padding": stream.packet_bytes - _HEADERS - _SENT_BYTES,
            }
            sender = await members.start_module(
                "sender", netns.namespace("src"), "udp", job, "send"
            )
            await sender.receive()
            shape(stream.rate_bps, stream.depth_bytes)
            compete(members, stream.busy, stream.seconds)
            progress.step(f"a stream for {stream.seconds:g} s")
            before = _scheduling(daemon)
            beats.take()
            queue = _Queue(daemon)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(queue.watch)
                await sender.send({"start_ns": time.monotonic_ns() + round(SETTLE_S * 1e9)})
                sent = (await sender.receive(stream.seconds + _PATIENCE_S))["result"]["packets"]
                nursery.cancel_scope.cancel()
            after = _scheduling(daemon)
            check_beats(beats)
            queued_s = queue.longest / packets_per_s
            if queued_s > STILL_S:
                raise DisturbedError(f"packets queued for {queued_s * 1000:.0f} ms")
            progress.step("counting")
            counted = await _counted(daemon, sent)
            counters = (await daemon.ask("/v1/status"))["datapath"]["counters"]
            arrivals = recorder.arrivals()
            if recorder.missed():
                raise MeasurementError(f"{recorder.missed()} packets were not taken down")
    return Outcome(
        source=source,
        sent=sent,
        beyond=beyond(arrivals, stream.rate_bps // 8, stream.depth_bytes),
        arrived=counted["arrived_packets"],
        dropped=counted["dropped_packets"],
        overflow=counters["overflow"],
        lost=sent - counted["arrived_packets"] - counters["overflow"],
        stamped_ebpf=counters["stamped_ebpf"],
        stamped_kernel=counters["stamped_kernel"],
        unstamped=counters["unstamped"],
        waited_ms=(after[0] - before[0]) / max(after[1] - before[1], 1) / 1e6,
    )


class _Queue:
    """The packets that wait for a daemon's verdict."""

    def __init__(self, daemon: Daemon) -> None:
        self._file = Path(f"/proc/{daemon.pid}/net/netfilter/nfnetlink_queue")
        self.longest = 0
        """The most that were seen, packets."""

    async def watch(self) -> None:
        """Look until cancelled, several times in the time after which arrivals do not count."""
        while True:
            text = self._file.read_text(encoding="ascii")
            # Of each queue: its number, the port, and how many packets wait.
            self.longest = max([self.longest, *(int(it.split()[2]) for it in text.splitlines())])
            await trio.sleep(STILL_S / 8)


def _receiver() -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("", PORT))
    return receiver


def _daemon(state: Path, stream: Stream, source: str) -> Daemon:
    """A daemon with a bucket for the stream."""
    document = {
        "limiter": {"name": LIMITER, "listen": "127.0.0.1:7946"},
        "packets": {"datapath": "nfqueue", "timestamps": source},
        "limit": [
            {
                "id": 1,
                "name": _LIMIT,
                "rate": f"{stream.rate_bps}bit",
                "burst": f"{stream.depth_bytes}B",
                "allocator": "ctb",
                "match": {"out": "down"},
            }
        ],
    }
    return Daemon(document, state, netns.namespace(LIMITER))


async def _counted(daemon: Daemon, packets: int) -> dict[str, Any]:
    """A daemon's counters, once it has counted `packets` packets, or no more arrive."""
    counted: dict[str, Any] = await daemon.ask(f"/v1/limits/{_LIMIT}")
    quiet = 0
    while counted["arrived_packets"] < packets and quiet < _QUIET_LOOKS:
        await trio.sleep(_LOOK_S)
        seen, counted = counted, await daemon.ask(f"/v1/limits/{_LIMIT}")
        quiet = quiet + 1 if counted["arrived_packets"] == seen["arrived_packets"] else 0
    return counted


def _scheduling(daemon: Daemon) -> tuple[int, int]:
    """The total time, ns, that a process waited for a processor, and the number of times it ran."""
    try:
        words = Path(f"/proc/{daemon.pid}/schedstat").read_text(encoding="ascii").split()
    except FileNotFoundError:
        raise MeasurementError(f"{daemon.name} ended") from None
    return int(words[1]), int(words[2])
