"""A fleet with a registry: real daemons and a real etcd in a namespace of their own.

Each limiter has an interface of its own, `up1`, `up2` and so on, which the fleet calls `uplink`;
a packet to 10.93.N.2 leaves by it, and no host has that address.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.netns import run, within

from ..etcd_server import EtcdServer
from . import preloaded
from .daemon_host import DaemonHost
from .topology import DEADLINE_S, remove_stale, wait_for

LIMITERS = 4
PAYLOAD = 972
LENGTH = PAYLOAD + 28
FPS = ("--name", "customer-a", "--rate", "10mbit", "--burst", "75kB", "--out", "uplink")
TABLE = {"id": 7, "name": "seven", "rate": "10mbit", "burst": "75kB", "match": {"out": "uplink"}}
_PATIENCE = ("--wait", str(DEADLINE_S))
"""The default is for operators; a busy host takes longer."""
_numbers = itertools.count()


class RegistryFleet:
    """The daemons, the server and the namespace."""

    def __init__(self, directory: Path) -> None:
        self.namespace = f"drldt-{os.getpid()}-etcd{next(_numbers)}"
        self.directory = directory
        self.etcd = EtcdServer(directory / "etcd", namespace=self.namespace)
        self.daemons: dict[str, DaemonHost] = {}

    def build(self, *, etcd: bool = True) -> None:
        run(["ip", "netns", "add", self.namespace])
        commands = ["link set lo up"]
        for number in range(1, LIMITERS + 1):
            commands += [
                f"link add up{number} type veth peer name dn{number}",
                f"link set up{number} addrgenmode none",
                f"link set dn{number} addrgenmode none",
                f"addr add 10.93.{number}.1/24 dev up{number}",
                f"link set up{number} up",
                f"link set dn{number} up",
                f"neigh add 10.93.{number}.2 lladdr 02:00:00:00:09:0{number} dev up{number}"
                " nud permanent",
            ]
        run(["ip", "-n", self.namespace, "-batch", "-"], stdin="\n".join(commands))
        if etcd:
            self.etcd.start()

    def remove(self) -> None:
        for daemon in self.daemons.values():
            daemon.close()
        self.etcd.kill()
        run(["ip", "netns", "delete", self.namespace], check=False)

    def daemon(
        self, number: int, *, name: str = "", fleet: str = "f", ttl: str = "10s"
    ) -> DaemonHost:
        """A limiter that is configured, and not started."""
        name = name or f"lim{number}"
        key = f"{fleet}-{number}"
        daemon = DaemonHost(self.namespace, self.directory, f"{fleet}-{name}-{number}", "kernel")
        self.daemons[key] = daemon
        daemon.config.write_text(
            f"""
            [limiter]
            name = "{name}"
            listen = "{self.address(number)}"
            control = "{daemon.socket}"
            [packets]
            datapath = "kernel"
            [gossip]
            fabric = "mesh"
            [registry]
            endpoints = ["http://127.0.0.9:1", "{self.etcd.url}"]
            fleet = "{fleet}"
            ttl = "{ttl}"
            cache = "{self.directory}/{key}.cache"
            interfaces = {{ uplink = "up{number}" }}
            """
        )
        return daemon

    @staticmethod
    def address(number: int) -> str:
        return f"127.0.0.{number}:7946"

    def started(self, *numbers: int, ttl: str = "10s") -> list[DaemonHost]:
        """Limiters that have all joined."""
        daemons = [self.daemon(number, ttl=ttl) for number in numbers]
        for daemon in daemons:
            daemon.start()
        for daemon in daemons:
            self.wait(daemon, lambda status: joined(status, len(daemons)))
        return daemons

    def wait(self, daemon: DaemonHost, done: Callable[[Any], bool]) -> Any:
        """The daemon's status once it is as wished."""

        def look() -> Any:
            # One that starts closes the connection.
            with contextlib.suppress(httpx.TransportError):
                return status(daemon)

        seen = wait_for(look, lambda report: report is not None and done(report))
        assert seen is not None, daemon.log
        assert done(seen), (seen, daemon.log)
        return seen

    def fleet(self, *arguments: str, check: bool = True, file: Path | None = None) -> Any:
        """The output of `drlctl fleet`, run inside the namespace."""
        patience = () if arguments[0] == "members" else _PATIENCE
        return self._drlctl("fleet", *arguments, *patience, check=check, file=file)

    def limit(self, *arguments: str, check: bool = True, file: Path | None = None) -> Any:
        """The output of a verb of `drlctl limit` on the fleet, run inside the namespace."""
        verbs = ("limit", *arguments, "--fleet", *_PATIENCE)
        return self._drlctl(*verbs, check=check, file=file)

    def _drlctl(self, *arguments: str, check: bool, file: Path | None) -> Any:
        daemon = next(iter(self.daemons.values()))
        group, verb, *rest = arguments
        config = ("--config", str(file or daemon.config))
        words = (*config, verb) if group == "fleet" else (verb, *config)
        command = (group, *words, *rest, "--json")
        done = preloaded.run("drld.cli", *command, namespace=self.namespace)
        assert not check or done.returncode == 0, done.stderr
        return json.loads(done.stdout) if done.stdout else done.stderr

    def send(self, number: int, count: int) -> None:
        """Send packets out of a limiter's interface, as fast as that goes."""

        def make() -> socket.socket:
            return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

        with within(self.namespace, make) as source:
            for _ in range(count):
                source.sendto(bytes(PAYLOAD), (f"10.93.{number}.2", 9))

    @contextlib.contextmanager
    def load(self, *numbers: int) -> Iterator[None]:
        """Send out of these limiters' interfaces all the time, some 5 MB/s from each."""
        stop = threading.Event()

        def blast() -> None:
            while not stop.wait(0.01):
                for number in numbers:
                    self.send(number, 50)

        sender = threading.Thread(target=blast, daemon=True)
        sender.start()
        try:
            yield
        finally:
            stop.set()
            sender.join()


@contextlib.contextmanager
def built(directory: Path, *, etcd: bool = True) -> Iterator[RegistryFleet]:
    """A namespace with etcd; daemons in it end with the context."""
    remove_stale()
    made = RegistryFleet(directory)
    try:
        made.build(etcd=etcd)
        yield made
    finally:
        made.remove()


def status(daemon: DaemonHost) -> Any:
    return daemon.get("/v1/status")


def joined(report: Any, members: int) -> bool:
    registry = report["registry"]
    return bool(
        registry["joined"] and registry["members"] == members and not registry["problem_count"]
    )


def in_force(daemon: DaemonHost, name: str, bps: float, connected: list[str]) -> None:
    """Wait until a limit is in force with that rate, and with these peers."""

    def as_wished(limit: Any) -> bool:
        rate, peers = limit["limit_in_force_bps"], limit["fleet"]["connected"]
        return bool(rate == pytest.approx(bps) and peers == connected)

    limit = wait_for(lambda: daemon.limit(name), as_wished)
    assert as_wished(limit), (limit, daemon.log)


def names(daemon: DaemonHost) -> list[str]:
    return [limit["name"] for limit in daemon.get("/v1/limits")]
