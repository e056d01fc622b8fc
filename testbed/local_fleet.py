"""Daemons in one namespace, each with an address of its loopback, and faults done to them.

Peers, keys and control sockets are the same for every plane; a plane adds its tables. A fault kills
or stops daemons, loses their datagrams, or cuts one off from the others.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

from testbed import netns
from testbed.server_process import ServerProcess

PORT = 7946
_KEY = "00112233445566778899aabbccddeeff"
_LOOK_S = 0.05
_DROPPED = ("-p", "udp", "-j", "DROP")


class LocalFleet:
    """Daemons that share a namespace, and the faults that any plane's limits may meet."""

    def __init__(
        self,
        directory: Path,
        name: str,
        tables: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare the fleet; `running` starts it.

        Args:
            directory: for all files.
            name: of the namespace.
            tables: what a plane adds to the configuration of each daemon.
            environment: is added to that of the daemons; `{own}` in it is a daemon's number.
        """
        self.directory = directory
        self.namespace = netns.namespace(name)
        self.nodes = len(tables)
        self._tables = tables
        self._daemons = [
            ServerProcess(
                f"daemon {own}",
                [sys.executable, "-m", "drld", "--config", str(self.file(own))],
                directory / f"{own}.log",
                namespace=self.namespace,
                environment={**os.environ, **{
                    key: value.format(own=own) for key, value in (environment or {}).items()
                }},
            )
            for own in range(self.nodes)
        ]  # fmt: skip

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all daemons, connected to each other; in the end remove them and the namespace."""
        netns.run(["ip", "netns", "add", self.namespace])
        try:
            self.inside("ip", "link", "set", "lo", "up")
            # The kernel's own words about closed ports are no daemon's bytes.
            self.inside("iptables", "-A", "OUTPUT", "-p", "icmp", "-j", "DROP")
            self._write()
            for daemon in self._daemons:
                daemon.launch()
            for own in range(self.nodes):
                await self._answers(own)
                while not await self.connected(own):
                    await trio.sleep(_LOOK_S)
            yield
        finally:
            netns.remove([self.namespace])

    def inside(self, *command: str) -> str:
        """The output of a command in the daemons' namespace."""
        return netns.run(["ip", "netns", "exec", self.namespace, *command])

    def address(self, own: int) -> str:
        """The address of a daemon."""
        return f"127.0.0.{1 + own}"

    def file(self, own: int) -> Path:
        """The configuration of a daemon."""
        return self.directory / f"{own}.toml"

    def log(self, own: int) -> str:
        """The log lines of a daemon, and of those that it has replaced."""
        return self._daemons[own].log

    def _write(self) -> None:
        """Write the files of all daemons."""
        key = self.directory / "key"
        key.write_text(_KEY)
        key.chmod(0o600)
        for own, tables in enumerate(self._tables):
            peers = "".join(
                f'[[peer]]\nname = "l{other}"\naddress = "{self.address(other)}:{PORT}"\n'
                for other in range(self.nodes) if other != own
            )  # fmt: skip
            self.file(own).write_text(f"""
[limiter]
name = "l{own}"
listen = "{self.address(own)}:{PORT}"
control = "{self.directory}/{own}.control"
[gossip]
keys = [{{ id = 1, file = "{key}" }}]
{tables}
{peers}""")

    async def start(self, own: int) -> None:
        """Start a daemon, and wait until it is ready.

        Raises:
            MeasurementError: it has ended.
        """
        self._daemons[own].launch()
        await self._answers(own)

    async def _answers(self, own: int) -> None:
        """Wait until a daemon is ready."""
        while not await self._ready(own):
            self._daemons[own].check()
            await trio.sleep(_LOOK_S)

    async def kill(self, own: int) -> None:
        """Kill a daemon, as a host that loses power does."""
        await trio.to_thread.run_sync(self._daemons[own].kill)

    def send(self, own: int, which: signal.Signals) -> None:
        """Send a signal to a daemon."""
        self.process(own).process.send_signal(which)

    def process(self, own: int) -> ServerProcess:
        """The process of a daemon."""
        return self._daemons[own]

    def client(self, own: int) -> httpx.AsyncClient:
        """A client of a daemon's control socket."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.directory / f"{own}.control"))
        return httpx.AsyncClient(transport=transport, base_url="http://drld", timeout=30)

    async def control(self, own: int, path: str) -> dict[str, Any]:
        """The answer of a daemon's control socket."""
        async with self.client(own) as client:
            found: dict[str, Any] = (await client.get(path)).json()
        return found

    async def _ready(self, own: int) -> bool:
        try:
            return bool((await self.control(own, "/v1/status"))["ready"])
        except httpx.TransportError:
            return False

    async def connected(self, own: int) -> bool:
        """Whether a daemon is connected to all its peers."""
        peers = (await self.control(own, "/v1/status"))["peers"]
        return bool(peers["connected"] == peers["configured"])

    def lose(self, part: float) -> None:
        """Lose this part of the datagrams between the daemons."""
        random = ("-m", "statistic", "--mode", "random", "--probability", str(part))
        self.inside("iptables", "-A", "INPUT", *random, *_DROPPED)

    def cut(self, own: int) -> None:
        """Cut a daemon off from the others: of all their datagrams, one end is its address."""
        self.inside("iptables", "-A", "INPUT", *_DROPPED, "-s", self.address(own))
        self.inside("iptables", "-A", "INPUT", *_DROPPED, "-d", self.address(own))

    def heal(self) -> None:
        """Let all datagrams through."""
        self.inside("iptables", "-F", "INPUT")
