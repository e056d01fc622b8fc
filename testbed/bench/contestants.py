"""The contestants of a lane: no limiter, drld, and alternatives to it.

All have a limit that never binds, so that only metering is compared.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from drld.capture.nfqueue.packet_queue import QUEUE_PACKETS
from drld.capture.packet import COPY_BYTES
from testbed import netns
from testbed.bench.lanes import Lane, Place, Setting
from testbed.bench.traffic import tool
from testbed.control import ask, await_ready
from testbed.crew import Child
from testbed.errors import HostError, MeasurementError
from testbed.fleet import toml
from testbed.link import delayline_rules

NEVER = {"rate": "100gbit", "burst": "1GB"}
"""A limit that never binds."""

_NFT_NEVER = "rate over 10000 mbytes/second burst 1000 mbytes"
_QUEUE = 7
_READY_S = 120.0
"""Longest wait for a daemon; one that needs more than a core answers slowly."""


class Nothing:
    """No limiter: a lane that only forwards."""

    name = "none"

    async def start(self, place: Place) -> None:
        """See `Contestant`."""

    def pause(self) -> None:
        """See `Contestant`."""

    def resume(self) -> None:
        """See `Contestant`."""

    async def check(self) -> str:
        """See `Contestant`."""
        return ""


class _Process(Nothing):
    """A contestant with a process."""

    process: Child | None = None

    @property
    def pid(self) -> int:
        """Id of the process, once it is started."""
        assert self.process is not None
        return self.process.pid

    def pause(self) -> None:
        """See `Contestant`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """See `Contestant`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            tell(self.process, number)


def tell(process: Child, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    if process.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


class Daemon(_Process):
    """A drld daemon with one limit on the lane's exit."""

    def __init__(self, datapath: str) -> None:
        self.name = f"drld {datapath}"
        self._datapath = datapath

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        limits = everything()(place.lane)
        self.process = launch_daemon(place, self._datapath, limits)
        status = await ready(place, self.process)
        if status["datapath"]["name"] != self._datapath:
            raise HostError(f"{self.name}: {status['datapath']['reason']}")
        self._control = place.control

    async def check(self) -> str:
        """See `Contestant`."""
        (limit,) = await ask(self._control, "/v1/limits")
        metered, dropped = limit["forwarded_packets"], limit["dropped_packets"]
        if dropped or not metered:
            raise MeasurementError(f"{self.name}: metered {metered}, dropped {dropped} packets")
        return ""


class Nft(Nothing):
    """nftables' limit statement."""

    name = "nft limit"

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        self._inside = ["ip", "netns", "exec", place.lane.namespace]
        netns.run([*self._inside, "nft", "-f", "-"], stdin=f"""
            table ip bench {{
                chain forward {{
                    type filter hook forward priority 0
                    oifname "{place.lane.exit}" limit {_NFT_NEVER} counter drop
                }}
            }}
            """)  # fmt: skip

    async def check(self) -> str:
        """See `Contestant`."""
        listed = netns.run([*self._inside, "nft", "list", "ruleset"])
        return _drops(self.name, listed, r"counter packets (\d+)")


class Hashlimit(Nothing):
    """iptables' hashlimit match, counting bytes."""

    name = "iptables hashlimit"

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        self._inside = ["ip", "netns", "exec", place.lane.namespace]
        # The highest possible rate, 16 Gbit/s, and burst, the bytes of a second at 32 Gbit/s.
        netns.run(
            [
                *(*self._inside, "iptables", "-A", "FORWARD", "-o", place.lane.exit),
                *("-m", "hashlimit", "--hashlimit-name", "bench"),
                *("--hashlimit-above", "2000mb/s", "--hashlimit-burst", "4000mb", "-j", "DROP"),
            ]
        )

    async def check(self) -> str:
        """See `Contestant`."""
        listed = netns.run([*self._inside, "iptables", "-vxnL", "FORWARD"])
        return _drops(self.name, listed, r"(\d+) +\d+ DROP")


class Police(Nothing):
    """tc's police action."""

    name = "tc police"

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        at = ["dev", place.lane.exit]
        self._tc = ["tc", "-netns", place.lane.namespace]
        netns.run([*self._tc, "qdisc", "add", *at, "clsact"])
        netns.run(
            [
                *(*self._tc, "filter", "add", *at, "egress", "protocol", "ip", "u32"),
                *("match", "u32", "0", "0", "police", "rate", "34gbit", "burst", "1gb"),
                *("conform-exceed", "drop"),
            ]
        )
        self._show = [*self._tc, "-s", "filter", "show", *at, "egress"]

    async def check(self) -> str:
        """See `Contestant`."""
        return _drops(self.name, netns.run(self._show), r"dropped (\d+)")


def _drops(name: str, listed: str, pattern: str) -> str:
    found = re.search(pattern, listed)
    if found is None:
        raise MeasurementError(f"{name} is not there: {listed}")
    dropped = int(found[1])
    return (
        f"{name} dropped {dropped} packets: the highest limit it can have was too low"
        if dropped
        else ""
    )


class Queue(_Process):
    """A program that accepts every packet of a queue, which is as long as drld's."""

    def __init__(self, name: str, command: Callable[[Setting], list[str]]) -> None:
        self.name = name
        self._command = command

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        arguments = [str(_QUEUE), str(QUEUE_PACKETS), str(COPY_BYTES)]
        self.process = place.members.start(
            f"queue-{place.lane.number}",
            place.lane.namespace,
            [*self._command(place.setting), *arguments],
        )
        await self.process.receive(_READY_S)
        netns.run(
            ["ip", "netns", "exec", place.lane.namespace, "iptables-restore"],
            stdin=delayline_rules({place.lane.exit: _QUEUE}),
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


class Program(_Process):
    """A BPF program without a daemon (`testbed.bench.program`)."""

    def __init__(
        self,
        name: str,
        limits: Callable[[Lane], list[dict[str, Any]]] | None = None,
        records: Sequence[Mapping[str, int]] = (),
        *,
        kind: str = "empty",
        count: int = 1,
    ) -> None:
        """drld's program with these limits, enforcing `records` in turn; or one of another kind.

        A `hash` or `trie` knows `count` of the lane's addresses that lead nowhere.
        """
        self.name = name
        self._limits = limits
        self._records = records
        self._kind = kind
        self._count = count

    async def start(self, place: Place) -> None:
        """See `Contestant`."""
        lane = place.lane
        job: dict[str, Any] = {
            "kind": self._kind,
            "device": lane.exit,
            "first": lane.nowhere,
            "count": self._count,
        }
        if self._limits is not None:
            # With a long interval the program does not take a stopped process for dead.
            limits = [{**limit, "interval": "10s"} for limit in self._limits(lane)]
            file = write_configuration(place, "auto", limits)
            job = {"kind": "drld", "config": str(file), "records": self._records}
        command = [sys.executable, "-m", "testbed.bench.program"]
        self.process = place.members.start(f"program-{lane.number}", lane.namespace, command)
        await self.process.send(job)
        await self.process.receive(_READY_S)


def everything(count: int = 1, **match: str) -> Callable[[Lane], list[dict[str, Any]]]:
    """Limits on all packets that leave a lane."""
    return lambda lane: [_limit(number, lane, match) for number in range(count)]


def prefixes(count: int) -> Callable[[Lane], list[dict[str, Any]]]:
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
        "match": {"out": lane.exit, **match},
    }  # fmt: skip


def launch_daemon(
    place: Place,
    datapath: str,
    limits: Sequence[Mapping[str, Any]],
    fleet: Mapping[str, Any] = MappingProxyType({}),
    listen: str = "",
) -> Child:
    """Start a daemon in a lane; `fleet` are its tables about gossip and peers."""
    file = write_configuration(place, datapath, limits, fleet, listen)
    command = [sys.executable, "-m", "drld", "--config", str(file)]
    return place.members.start(place.name, place.lane.namespace, command)


async def ready(place: Place, daemon: Child) -> dict[str, Any]:
    """Wait until a daemon is ready and hears its peers; return its status."""
    return await await_ready(place.control, daemon, _READY_S)


def write_configuration(
    place: Place,
    datapath: str,
    limits: Sequence[Mapping[str, Any]],
    fleet: Mapping[str, Any] = MappingProxyType({}),
    listen: str = "",
) -> Path:
    """A daemon's configuration in a lane; by default it listens there."""
    document = {
        "limiter": {
            "name": place.name,
            "listen": listen or f"{place.lane.exit_address}:7946",
            "control": str(place.control),
        },
        "packets": {"datapath": datapath},
        **fleet,
        "limit": list(limits),
    }
    file = place.setting.state / f"{place.name}.toml"
    file.write_text(toml(document), encoding="utf-8")
    return file
