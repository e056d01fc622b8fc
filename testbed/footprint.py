"""The cost of an idle daemon: processor time and memory, in a fleet of real daemons.

All daemons run in one network namespace, each on a loopback address of its own, with one limit
that no packet matches. Gossip goes on, so this is the least cost of any daemon.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio

from testbed import netns
from testbed.crew import crew
from testbed.daemon import Daemon
from testbed.harness.progress import Progress
from testbed.topology import build

_ROLE = "hosts"
_PORT = 7946


@dataclass(frozen=True, slots=True)
class IdleFleet:
    """The fleet to measure."""

    peers: int
    """Number of peers of each daemon."""
    fabric: str
    interval: str
    datapath: str


async def measure(fleet: IdleFleet, seconds: float, progress: Progress) -> list[dict[str, float]]:
    """Start the daemons; return the cost of each (`Daemon.cost`) in `seconds` after all were ready.

    Raises:
        MeasurementError: a daemon did not become ready, or ended.
    """
    with netns.workspace() as state:
        build({_ROLE: ["link add limited type veth peer name far"]}, [])
        async with crew(state) as members:
            daemons = _daemons(fleet, state)
            progress.step(f"starting {len(daemons)} daemons")
            for daemon in daemons:
                daemon.launch(members)
            for daemon in daemons:
                await daemon.ready()
            begun = [daemon.clock() for daemon in daemons]
            progress.step(f"measuring for {seconds:g} s")
            await trio.sleep(seconds)
            return [daemon.cost(since) for daemon, since in zip(daemons, begun, strict=True)]


def _daemons(fleet: IdleFleet, state: Path) -> list[Daemon]:
    addresses = {
        f"lim{number}": f"127.0.0.{number}:{_PORT}" for number in range(1, fleet.peers + 2)
    }
    limit = {
        "id": 1, "name": "idle", "rate": "10mbit", "burst": "75kB", "allocator": "fps",
        "match": {"out": "limited"},
    }  # fmt: skip
    common: dict[str, Any] = {
        "packets": {"datapath": fleet.datapath},
        "gossip": {"fabric": fleet.fabric, "interval": fleet.interval},
        "limit": [limit],
    }
    return [
        Daemon(
            {
                "limiter": {"name": name, "listen": listen},
                "peer": [
                    {"name": peer, "address": address}
                    for peer, address in addresses.items()
                    if peer != name
                ],
                **common,
            },
            state,
            netns.namespace(_ROLE),
        )
        for name, listen in addresses.items()
    ]
