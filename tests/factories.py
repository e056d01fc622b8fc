"""Values that many tests need, with only what a test cares about spelled out."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from drld.allocators import ALLOCATORS
from drld.capture.spec import Match
from drld.model import NS_PER_S, Demand, FlowId, FlowKey, GlobalView, Measurement
from drld.police.direction import Direction
from drld.police.policer import Excess
from drld.policy import Policy
from drld.spec import GossipSpec, LimiterSpec, LimitSpec, PeerSpec

EXAMPLE = Path(__file__).resolve().parents[1] / "docs" / "drld.example.toml"
MS = NS_PER_S // 1000
TICK_NS = 50 * MS
MBIT = 125_000
"""Bytes/s in a Mbit/s."""


def example(key_file: Path | None = None) -> str:
    """The example configuration, with its key here, or without one."""
    (keys,) = (line for line in EXAMPLE.read_text().splitlines() if line.startswith("keys ="))
    found = EXAMPLE.read_text()
    if key_file is None:
        return found.replace(keys, "")
    return found.replace("/etc/drld/fleet.key", str(key_file))


@functools.cache
def flow(number: int) -> FlowId:
    return FlowKey(6, b"\x0a\x00\x00\x01", b"\x0a\x09\x02\x01", 1024 + number, 80)


def policy(allocator: str = "fps", **changes: Any) -> Policy:
    made = Policy(
        id=1,
        name="customer-a",
        rate=10 * MBIT,
        burst=75_000,
        allocator=allocator,
        parameters=ALLOCATORS[allocator].Parameters(),
        interval_ns=TICK_NS,
        ewma=0.1,
        excess=Excess.DROP,
    )
    return replace(made, **changes)


def limit_spec(allocator: str = "fps", **changes: Any) -> LimitSpec:
    """A policy on all packets that leave by one interface."""
    target = {key: changes.pop(key) for key in ("match", "on_failure") if key in changes}
    match = Match(interface="out", direction=Direction.OUT)
    return replace(LimitSpec(policy(allocator, **changes), match), **target)


def with_policy(limit: LimitSpec, **changes: Any) -> LimitSpec:
    """The same limit after some changes of its policy."""
    return replace(limit, policy=replace(limit.policy, **changes))


def gossip_spec(fabric: str = "mesh") -> GossipSpec:
    return GossipSpec(fabric=fabric, branching=3, interval_ns=TICK_NS)


def limiter_spec(*limits: LimitSpec, peers: Sequence[str] = ("b",), **changes: Any) -> LimiterSpec:
    """The limiter `a` with some peers; nothing in it touches the host."""
    spec = LimiterSpec(
        name="a",
        listen=("127.0.0.1", 7946),
        control="/run/drld/a.sock",
        gossip=gossip_spec(),
        peers=tuple(PeerSpec(peer, ("127.0.0.2", 7946)) for peer in peers),
        limits=limits,
    )
    return replace(spec, **changes)


def measurement(
    arrived: int,
    *,
    dropped: int = 0,
    flows: Mapping[FlowId, int] | None = None,
    interval_ns: int = TICK_NS,
) -> Measurement:
    """`arrived` and `dropped` bytes in one interval; by default all from one flow."""
    return Measurement(
        interval_ns=interval_ns,
        arrived_tokens=arrived,
        arrived_items=-(-arrived // 1500),
        forwarded_tokens=arrived - dropped,
        forwarded_items=-(-(arrived - dropped) // 1500),
        dropped_tokens=dropped,
        dropped_items=-(-dropped // 1500),
        flows={flow(0): arrived} if flows is None else flows,
    )


def demand(
    rate: float,
    *,
    flow_rate: float | None = None,
    drop_ratio: float = 0.0,
    first: bool = False,
    idle: bool = False,
) -> Demand:
    return Demand(
        rate=rate,
        instant_rate=rate,
        flow_rate=flow_rate,
        long_rate=rate,
        flows=0 if flow_rate is None else 1,
        drop_ratio=drop_ratio,
        first=first,
        idle=idle,
        fastest_rate=flow_rate,
    )


def view(remote: float, *peers: str) -> GlobalView:
    return GlobalView(remote=remote, connected=frozenset(peers or ("other",)), age_ns=0)
