"""Measures how exact an emulated link is on this host, with a stream of UDP packets timed twice.

    src ==== wan ==== sink

The link reports its own error (release less due time). An independent measurement checks it: each
packet carries its sending time, and the kernel stamps its arrival at the sink.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from testbed import netns
from testbed.crew import Child, Crew, crew
from testbed.delay import LinkReport
from testbed.errors import MeasurementError
from testbed.link import Link, Links
from testbed.topology import SINK, WAN, build_line

LINK = "down"
"""The router's interface whose link is checked."""

_SETTLE_S = 0.3
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a link check."""

    rate: float
    """Packets per second that were sent."""
    sent: int
    received: int
    delay_ms: float
    """The configured delay."""
    least_ms: float
    """Smallest measured one-way delay; the next fields are measured, too."""
    median_ms: float
    p99_ms: float
    worst_ms: float
    report: LinkReport | None
    """The link's own report, if it has one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A source and a sink with one emulated link between them."""

    crew: Crew
    source: str
    """The source's namespace."""
    sink: str
    address: str
    """The sink's address."""


@asynccontextmanager
async def line(links: Links, delay_ns: int, loss: float = 0.0) -> AsyncIterator[Line]:
    """Build a line in this process's workspace; its link is `LINK`."""
    address = build_line(WAN)
    async with crew(netns.state_directory()) as members:
        await links.start(members, netns.namespace(WAN), (Link(LINK, delay_ns, loss),))
        yield Line(members, netns.namespace("src"), netns.namespace(SINK), address)


async def check(
    links: Links, packets_per_s: int, seconds: float, delay_ns: int, loss: float = 0.0
) -> Check:
    """Send a stream through one link, in this process's workspace.

    Whether the link could keep up is in its report.

    Raises:
        MeasurementError: packets are missing.
    """
    async with line(links, delay_ns, loss) as wired:
        stream = {"destination": wired.address, "rate": packets_per_s, "seconds": seconds}
        start = wired.crew.start_module
        receiver = await start("receiver", wired.sink, "udp", stream, "receive")
        sender = await start("sender", wired.source, "udp", stream, "send")
        sent, delays = await timed(sender, receiver, seconds + delay_ns / 1e9)
        report = await links.stop()
    if report is not None and len(delays) != sent["packets"] - report.lost:
        raise MeasurementError(
            f"{sent['packets']} packets were sent and {report.lost} lost on purpose, "
            f"but {len(delays)} received"
        )
    return Check(
        rate=sent["packets"] / sent["seconds"],
        sent=sent["packets"],
        received=len(delays),
        delay_ms=delay_ns / 1e6,
        least_ms=quantile_ms(delays, 0.0),
        median_ms=quantile_ms(delays, 0.5),
        p99_ms=quantile_ms(delays, 0.99),
        worst_ms=quantile_ms(delays, 1.0),
        report=report,
    )


async def timed(sender: Child, receiver: Child, seconds: float) -> tuple[dict[str, Any], list[int]]:
    """Send a stream between two processes of `testbed.udp`.

    Returns:
        The sender's report, and the delays of the received packets, ns, by size.
    """
    for process in (receiver, sender):
        await process.receive()
    start_ns = time.monotonic_ns() + round(_SETTLE_S * 1e9)
    for process in (receiver, sender):
        await process.send({"start_ns": start_ns})
    patience_s = _SETTLE_S + seconds + _PATIENCE_S
    sent = (await sender.receive(patience_s))["result"]
    return sent, sorted((await receiver.receive(patience_s))["result"])


def quantile_ms(delays_ns: list[int], share: float) -> float:
    """A quantile of sorted delays; not a number if no packet was received."""
    if not delays_ns:
        return float("nan")
    return delays_ns[min(int(len(delays_ns) * share), len(delays_ns) - 1)] / 1e6
