"""The daemons of a fleet, with the actions of operators and faults."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import trio

from drld.config.toml_text import toml
from testbed import control, netns
from testbed.chaos.leaks import Held, held, left
from testbed.chaos.logs import Log
from testbed.chaos.urgency import RAISED
from testbed.crew import Child, Crew
from testbed.process import status_bytes
from testbed.topology import limiter_role

READY_S = 60.0
_STOP_S = 20.0
_ASK_S = 30.0

LOAD, WATCHED = "load", "canary"
"""Names of the limits: of the load, and of the canaries."""


@dataclass(slots=True)
class Health:
    """A daemon's use of the host's resources."""

    resident_bytes: int
    descriptors: int


@dataclass(slots=True)
class Member:
    """One limiter: its configuration, and all runs of its daemon."""

    name: str
    document: dict[str, Any]
    file: Path
    control: Path
    environment: dict[str, str] = field(default_factory=dict)
    shell: str | None = None
    """Commands of a shell that then becomes the daemon."""
    log: Path | None = None
    """Path of the log in the daemon's view, if it differs."""
    daemon: Child | None = None
    logs: list[Log] = field(default_factory=list)
    objects: Held = field(default_factory=set)
    """BPF programs and maps that its daemons had."""

    @property
    def namespace(self) -> str:
        """The namespace of its daemon."""
        return netns.namespace(limiter_role(self.name))

    @property
    def pid(self) -> int:
        """Process id of its daemon."""
        return self._child.pid

    @property
    def _child(self) -> Child:
        assert self.daemon is not None, "not started"
        return self.daemon

    @property
    def socket(self) -> Path:
        """Its control socket, as this process sees it."""
        return Path(f"/proc/{self.pid}/root{self.control}") if self.shell else self.control

    def write(self) -> None:
        """Write its configuration."""
        self.file.write_text(toml(self.document), encoding="utf-8")

    def launch(self, crew: Crew) -> None:
        """Start its daemon."""
        command = [sys.executable, "-m", "drld", "--config", str(self.file)]
        if self.shell is not None:
            command = ["sh", "-c", f'{self.shell} && exec "$@"', "sh", *command]
        environment = [f"{key}={value}" for key, value in self.environment.items()]
        name = f"{self.name}.{len(self.logs) + 1}"
        urgent = ["sh", "-c", RAISED, "sh", "env", *environment]
        self.daemon = crew.start(name, self.namespace, [*urgent, *command])
        seen = self.file.parent / f"{name}.log"
        if self.log is not None:
            seen = Path(f"/proc/{self.pid}/root{self.log}")
        self.logs.append(Log(seen))

    async def ready(self) -> None:
        """Wait until packets are policed and the daemon answers.

        Raises:
            MeasurementError: the daemon ended, or took too long.
        """
        await control.await_ready(self.socket, self._child, READY_S, peers_too=False)
        self.look()

    def look(self) -> None:
        """Record its BPF objects, to check for them after its end."""
        if self.alive:
            self.objects |= held(self.pid)

    @property
    def alive(self) -> bool:
        """Whether its daemon runs."""
        return self.daemon is not None and self.daemon.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send its daemon a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill its daemon, like a crash."""
        self.look()
        self._child.kill()

    async def ask(self, path: str) -> Any:
        """Its daemon's answer to a request.

        Raises:
            MeasurementError: there is no answer.
        """
        return await control.ask(self.socket, path)

    async def post(self, path: str, body: Any = None) -> int:
        """Send its daemon a command; return the HTTP status, or 0 if there is no answer."""
        try:
            async with control.client(self.socket, _ASK_S) as client:
                return (await client.post(path, json=body)).status_code
        except httpx.HTTPError:
            return 0

    async def reload(self) -> int:
        """Reload its configuration; return as `post`."""
        return await self.post("/v1/reload")

    def health(self) -> Health:
        """Its present use of the host's resources."""
        descriptors = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        return Health(status_bytes(self._child, "VmRSS"), descriptors)

    def lines(self) -> list[str]:
        """All that its daemons have logged."""
        for log in self.logs:
            log.look()
        return [line for log in self.logs for line in log.lines]

    async def stop(self) -> list[str]:
        """Stop its daemon as systemd does; list failures and leftovers."""
        if not self.alive:
            return [f"{self.name}: its daemon is not running"]
        self.look()
        self._child.terminate()
        with trio.move_on_after(_STOP_S):
            while self.alive:
                await trio.sleep(0.02)
        status = self._child.process.poll()
        found = [] if status == 0 else [f"stopped with exit status {status}"]
        if self.control.exists():
            found.append(f"{self.control}")
        found += await left(self.namespace, self.objects)
        return [f"{self.name}: {each}" for each in found]
