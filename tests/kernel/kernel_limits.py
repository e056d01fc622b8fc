"""Limits on the kernel datapath, and the programs and packets that the tests expect of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drld.model import GRACE_INTERVALS
from drld.spec import LimitSpec, OnFailure

from ..factories import MS
from . import packets
from .attached import ours
from .packets import (
    SINK,
    UDP_NUMBER,
    send_udp,
)
from .remote import RemoteKernelDatapath
from .topology import Topology

Start = Callable[..., RemoteKernelDatapath]

INTERVAL_NS = 50 * MS
GRACE_NS = GRACE_INTERVALS * INTERVAL_NS


def limit(
    limit_id: int, interface: str = "out0", destination: str | None = None, **settings: Any
) -> LimitSpec:
    """A limit on UDP: a new interface reports the multicast groups it is in."""
    settings = {"interval_ns": INTERVAL_NS, "on_failure": OnFailure.SHARE, **settings}
    return packets.limit(limit_id, interface, destination, protocol=UDP_NUMBER, **settings)


def filters(topology: Topology) -> list[str]:
    """Our programs and clsact qdiscs in the limiter's namespace."""
    return ours(topology, "in0", "out0")


def expected(way: str, *hooks: str) -> list[str]:
    """The expected programs for these hooks, one an interface."""
    return [
        line
        for hook in hooks
        for line in ([hook, f"{hook.split()[0]} clsact"] if way == "clsact" else [hook])
    ]


def passed(topology: Topology, datapath: RemoteKernelDatapath, count: int) -> int:
    """How many of these packets limit 1 lets pass."""
    before = datapath.total(1)
    send_udp(topology, SINK[4], count)
    after = datapath.wait(1, before.arrived_items + count)
    return after.forwarded_items - before.forwarded_items
