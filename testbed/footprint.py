"""The cost of an idle daemon: processor time and memory, in a fleet of real daemons.

All daemons run in one network namespace, each on a loopback address of its own, with one limit
that no packet matches. Gossip goes on, so this is the least cost of any daemon.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import trio

from drld.config.toml_text import toml
from testbed import netns
from testbed.control import await_ready
from testbed.crew import crew
from testbed.harness.progress import Progress
from testbed.process import cpu_s, status_bytes

_ROLE = "hosts"
_PORT = 7946
_READY_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class IdleFleet:
    """The fleet to measure."""

    peers: int
    """Number of peers of each daemon."""
    fabric: str
    interval: str
    datapath: str


@dataclass(frozen=True, slots=True)
class Footprint:
    """The cost of one daemon."""

    core_share: float
    """Processor time over time; 1.0 is a whole core."""
    resident_bytes: int
    peak_bytes: int
    """Largest resident memory, start included."""


async def measure(fleet: IdleFleet, seconds: float, progress: Progress) -> list[Footprint]:
    """Start the daemons; return the cost of each in `seconds` after all were ready.

    Raises:
        MeasurementError: a daemon did not become ready, or ended.
    """
    addresses = {f"lim{number}": f"127.0.0.{number}" for number in range(1, fleet.peers + 2)}
    with netns.workspace() as state:
        namespace = netns.namespace(_ROLE)
        netns.run(["ip", "netns", "add", namespace])
        netns.run(["ip", "-n", namespace, "link", "set", "lo", "up"])
        netns.run(
            [
                "ip",
                "-n",
                namespace,
                *["link", "add", "limited", "type", "veth", "peer", "name", "far"],
            ]
        )
        async with crew(state) as members:
            daemons = {}
            progress.step(f"starting {len(addresses)} daemons")
            for name in addresses:
                file = state / f"{name}.toml"
                document = _document(fleet, name, addresses, state)
                file.write_text(toml(document), encoding="utf-8")
                command = [sys.executable, "-m", "drld", "--config", str(file)]
                daemons[name] = members.start(name, namespace, command)
            for name, daemon in daemons.items():
                await await_ready(state / f"{name}.sock", daemon, _READY_TIMEOUT_S)
            before = {name: cpu_s(daemon) for name, daemon in daemons.items()}
            began = trio.current_time()
            progress.step(f"measuring for {seconds:g} s")
            await trio.sleep(seconds)
            elapsed = trio.current_time() - began
            return [
                Footprint(
                    core_share=(cpu_s(daemon) - before[name]) / elapsed,
                    resident_bytes=status_bytes(daemon, "VmRSS"),
                    peak_bytes=status_bytes(daemon, "VmHWM"),
                )
                for name, daemon in daemons.items()
            ]


def _document(
    fleet: IdleFleet, name: str, addresses: dict[str, str], state: Path
) -> dict[str, object]:
    return {
        "limiter": {
            "name": name,
            "listen": f"{addresses[name]}:{_PORT}",
            "control": str(state / f"{name}.sock"),
        },
        "packets": {"datapath": fleet.datapath},
        "gossip": {"fabric": fleet.fabric, "interval": fleet.interval},
        "peer": [
            {"name": peer, "address": f"{address}:{_PORT}"}
            for peer, address in addresses.items()
            if peer != name
        ],
        "limit": [
            {
                "id": 1,
                "name": "idle",
                "rate": "10mbit",
                "burst": "75kB",
                "allocator": "fps",
                "match": {"out": "limited"},
            }
        ],
    }
