"""The daemons of a fleet, with the actions of operators and faults."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trio

from testbed import netns
from testbed.chaos.leaks import Held, held, left
from testbed.chaos.logs import Log
from testbed.chaos.urgency import RAISED
from testbed.crew import Crew
from testbed.daemon import Daemon
from testbed.provenance import ROOT
from testbed.topology import limiter_role

_STOP_S = 20.0
_ASK_S = 30.0

LOAD, WATCHED = "load", "canary"
"""Names of the limits: of the load, and of the canaries."""


@dataclass(slots=True)
class Health:
    """A daemon's use of the host's resources."""

    resident_bytes: int
    descriptors: int


class Member(Daemon):
    """One limiter: its configuration, and all runs of its daemon."""

    def __init__(self, document: dict[str, Any], state: Path) -> None:
        name = document["limiter"]["name"]
        super().__init__(document, state, netns.namespace(limiter_role(name)))
        self.environment: dict[str, str] = {}
        self.code = ROOT
        """The folder of the version that it runs."""
        self.shell: str | None = None
        """Commands of a shell that then becomes the daemon."""
        self.log: Path | None = None
        """Path of the log in the daemon's view, if it differs."""
        self.logs: list[Log] = []
        self.objects: Held = set()
        """BPF programs and maps that its daemons had."""

    @property
    def socket(self) -> Path:
        """See `Daemon`."""
        return Path(f"/proc/{self.pid}/root{self.control}") if self.shell else self.control

    def launch(self, crew: Crew) -> None:
        """Start it with the configuration that is written."""
        command = self.command
        if self.shell is not None:
            command = ["sh", "-c", f'{self.shell} && exec "$@"', "sh", *command]
        environment = [f"{key}={value}" for key, value in self.environment.items()]
        name = f"{self.name}.{len(self.logs) + 1}"
        urgent = ["sh", "-c", RAISED, "sh", "env", "-C", str(self.code), *environment]
        self._process = crew.start(name, self.namespace, [*urgent, *command])
        seen = self.file.parent / f"{name}.log"
        if self.log is not None:
            seen = Path(f"/proc/{self.pid}/root{self.log}")
        self.logs.append(Log(seen))

    async def ready(self, *, peers_too: bool = False) -> dict[str, Any]:
        """See `Daemon`; packets are policed from then on."""
        status = await super().ready(peers_too=peers_too)
        self.look()
        return status

    def look(self) -> None:
        """Record its BPF objects, to check for them after its end."""
        if self.alive:
            self.objects |= held(self.pid)

    @property
    def alive(self) -> bool:
        """Whether its daemon runs."""
        return self._process is not None and self._process.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send its daemon a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill its daemon, like a crash."""
        self.look()
        self.process.kill()

    async def post(self, path: str, body: Any = None) -> int:
        """Send its daemon a command; return the HTTP status, or 0 if there is no answer."""
        try:
            async with self.client(_ASK_S) as client:
                return (await client.post(path, json=body)).status_code
        except httpx.HTTPError:
            return 0

    async def reload(self) -> int:
        """Reload its configuration; return as `post`."""
        return await self.post("/v1/reload")

    def health(self) -> Health:
        """The daemon's present use of the host's resources."""
        descriptors = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        return Health(self.resident_bytes(), descriptors)

    def lines(self) -> list[str]:
        """The log lines of all runs of the daemon."""
        for log in self.logs:
            log.look()
        return [line for log in self.logs for line in log.lines]

    async def stop(self) -> list[str]:
        """Stop its daemon as systemd does; list failures and leftovers."""
        if not self.alive:
            return [f"{self.name}: its daemon is not running"]
        self.look()
        self.process.terminate()
        with trio.move_on_after(_STOP_S):
            while self.alive:
                await trio.sleep(0.02)
        status = self.process.process.poll()
        found = [] if status == 0 else [f"stopped with exit status {status}"]
        if self.control.exists():
            found.append(f"{self.control}")
        found += await left(self.namespace, self.objects)
        return [f"{self.name}: {each}" for each in found]
