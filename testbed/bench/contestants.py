"""The contestants of a lane besides none: drld, and alternatives to it.

All have a limit that never binds, so that only metering is compared.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from drld.capture.nfqueue.packet_queue import QUEUE_PACKETS
from drld.capture.packet import COPY_BYTES
from testbed import netns
from testbed.bench.lanes import Contestant, Lane, Place, Setting
from testbed.bench.traffic import tool
from testbed.daemon import Daemon
from testbed.errors import HostError, MeasurementError
from testbed.link import delayline_rules

NEVER = {"rate": "100gbit", "burst": "1GB"}
"""A limit that never binds."""

_QUEUE = 7
_READY_S = 120.0
"""Longest wait for a program; one with many limits takes long."""

Limits = Callable[[Lane], list[dict[str, Any]]]
"""Makes the limits of a lane, as a configuration has them."""


class Drld(Contestant):
    """A drld daemon with one limit on the lane's exit."""

    def __init__(self, datapath: str) -> None:
        super().__init__()
        self.name = f"drld {datapath}"
        self._datapath = datapath
        self._daemon: Daemon

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        self._daemon = configured(place, self._datapath, everything()(place.lane))
        self._daemon.launch(place.members)
        self.processes = [self._daemon.process]
        status = await self._daemon.ready()
        if status["datapath"]["name"] != self._datapath:
            raise HostError(f"{self.name}: {status['datapath']['reason']}")

    async def check(self, place: Place) -> str:  # noqa: ARG002 -- for those that need it
        """See `Contestant`."""
        (limit,) = await self._daemon.ask("/v1/limits")
        metered, dropped = limit["forwarded_packets"], limit["dropped_packets"]
        if dropped or not metered:
            raise MeasurementError(f"{self.name}: metered {metered}, dropped {dropped} packets")
        return ""


class Tool(Contestant):
    """A meter of the kernel, set up by commands; `EXIT` in them is the lane's exit."""

    def __init__(self, name: str, set_up: Sequence[str], show: str, dropped: str) -> None:
        """`dropped` finds the number of dropped packets in the output of the command `show`."""
        super().__init__()
        self.name = name
        self._set_up = set_up
        self._show = show
        self._dropped = dropped

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        for command in self._set_up:
            _run(place.lane, command)

    async def check(self, place: Place) -> str:
        """See `Contestant`."""
        listed = _run(place.lane, self._show)
        found = re.search(self._dropped, listed)
        if found is None:
            raise MeasurementError(f"{self.name} is not there: {listed}")
        if not int(found[1]):
            return ""
        return f"{self.name} dropped {found[1]} packets: the highest limit it can have was too low"


def _run(lane: Lane, command: str) -> str:
    words = shlex.split(command.replace("EXIT", lane.exit.device))
    return netns.run(["ip", "netns", "exec", lane.namespace, *words])


NFT = Tool(
    "nft limit",
    [
        "nft add table ip bench",
        "nft add chain ip bench forward '{ type filter hook forward priority 0 ; }'",
        "nft add rule ip bench forward oifname EXIT "
        "limit rate over 10000 mbytes/second burst 1000 mbytes counter drop",
    ],
    "nft list ruleset",
    r"counter packets (\d+)",
)
HASHLIMIT = Tool(
    "iptables hashlimit",
    # The highest possible rate, 16 Gbit/s, and burst, the bytes of a second at 32 Gbit/s.
    [
        "iptables -A FORWARD -o EXIT -m hashlimit --hashlimit-name bench "
        "--hashlimit-above 2000mb/s --hashlimit-burst 4000mb -j DROP"
    ],
    "iptables -vxnL FORWARD",
    r"(\d+) +\d+ DROP",
)
POLICE = Tool(
    "tc police",
    [
        "tc qdisc add dev EXIT clsact",
        "tc filter add dev EXIT egress protocol ip u32 match u32 0 0 "
        "police rate 34gbit burst 1gb conform-exceed drop",
    ],
    "tc -s filter show dev EXIT egress",
    r"dropped (\d+)",
)


class Queue(Contestant):
    """A program that accepts every packet of a queue, which is as long as drld's."""

    def __init__(self, name: str, command: Callable[[Setting], list[str]]) -> None:
        super().__init__()
        self.name = name
        self._command = command

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        lane = place.lane
        command = [*self._command(place.setting), *map(str, (_QUEUE, QUEUE_PACKETS, COPY_BYTES))]
        process = place.members.start(f"queue-{lane.number}", lane.namespace, command)
        self.processes = [process]
        await process.receive(_READY_S)
        netns.run(
            ["ip", "netns", "exec", lane.namespace, "iptables-restore"],
            stdin=delayline_rules({lane.exit.device: _QUEUE}),
        )


def bare_loop() -> Queue:
    """The netfilterqueue library's own loop, without any work."""
    command = [sys.executable, "-m", "testbed.bench.nfq_accept"]
    return Queue("bare netfilterqueue loop", lambda _: command)


def loop_in_c() -> Queue:
    """A loop in C that accepts every packet."""
    return Queue(
        "C on libnetfilter_queue",
        lambda setting: [str(tool(setting, "nfq_accept", "netfilter_queue"))],
    )


class Program(Contestant):
    """A BPF program without a daemon (`testbed.bench.program`)."""

    def __init__(
        self,
        name: str,
        limits: Limits | None = None,
        records: Sequence[Mapping[str, int]] = (),
    ) -> None:
        """drld's program with these limits, enforcing `records` in turn; None: an empty one."""
        super().__init__()
        self.name = name
        self._limits = limits
        self._records = records

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        lane = place.lane
        job: dict[str, Any] = {"device": lane.exit.device}
        if self._limits is not None:
            # With a long interval the program does not take a stopped process for dead.
            limits = [{**limit, "interval": "10s"} for limit in self._limits(lane)]
            daemon = configured(place, "auto", limits)
            daemon.write()
            job = {"config": str(daemon.file), "records": self._records}
        command = [sys.executable, "-m", "testbed.bench.program"]
        process = place.members.start(f"program-{lane.number}", lane.namespace, command)
        self.processes = [process]
        await process.send(job)
        await process.receive(_READY_S)


def everything(count: int = 1, **match: str) -> Limits:
    """Limits on all packets that leave a lane."""
    return lambda lane: [_limit(number, lane, match) for number in range(count)]


def prefixes(count: int) -> Limits:
    """A limit for each of the first addresses that lead nowhere."""

    def make(lane: Lane) -> list[dict[str, Any]]:
        first = ipaddress.IPv4Address(lane.nowhere)
        return [
            _limit(number, lane, {"destination": f"{first + number}/32"}) for number in range(count)
        ]

    return make


def _limit(number: int, lane: Lane, match: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": number + 1, "name": f"limit-{number}", **NEVER,
        "match": {"out": lane.exit.device, **match},
    }  # fmt: skip


def configured(
    place: Place,
    datapath: str,
    limits: Sequence[Mapping[str, Any]],
    fleet: Mapping[str, Any] = MappingProxyType({}),
    listen: str = "",
) -> Daemon:
    """A daemon for a lane, where it listens unless told otherwise.

    `fleet`: its tables about gossip and peers.
    """
    document = {
        "limiter": {"name": place.name, "listen": listen or f"{place.lane.exit.address}:7946"},
        "packets": {"datapath": datapath},
        **fleet,
        "limit": list(limits),
    }
    return Daemon(document, place.setting.state, place.lane.namespace)
