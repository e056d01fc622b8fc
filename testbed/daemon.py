"""A real daemon of a run: its configuration, its process, its answers, and its cost."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import trio

from drld.config.toml_text import toml
from drld.model import NS_PER_S
from testbed.crew import Child, Crew
from testbed.errors import MeasurementError

_READY_S = 120.0
"""Longest wait for a daemon; one of many, or one that needs more than a core, answers slowly."""
_ANSWER_S = 60.0
_POLL_S = 0.02
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Daemon:
    """`python -m drld` in a namespace."""

    def __init__(self, document: dict[str, Any], state: Path, namespace: str) -> None:
        """`state`: its directory; `document`: its configuration without a control socket."""
        self.name: str = document["limiter"]["name"]
        self.document = document
        self.namespace = namespace
        self.file = state / f"{self.name}.toml"
        self.control = state / f"{self.name}.sock"
        """The path of the control socket in the daemon's view of the file system."""
        self._process: Child | None = None

    @property
    def command(self) -> list[str]:
        """The command that starts it."""
        return [sys.executable, "-m", "drld", "--config", str(self.file)]

    @property
    def process(self) -> Child:
        """The daemon's process, or its last one."""
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        """The id of the daemon's process."""
        return self.process.pid

    @property
    def socket(self) -> Path:
        """The path of the control socket in this process's view of the file system."""
        return self.control

    def write(self) -> None:
        """Write its configuration."""
        self.document["limiter"]["control"] = str(self.control)
        self.file.write_text(toml(self.document), encoding="utf-8")

    def launch(self, crew: Crew) -> None:
        """Write its configuration, and start it."""
        self.write()
        self._process = crew.start(f"daemon {self.name}", self.namespace, self.command)

    async def ready(self, *, peers_too: bool = True) -> dict[str, Any]:
        """Wait until it is ready, and connected to all its peers; return its status.

        Raises:
            MeasurementError: it ended, or was not ready in time.
        """
        status: dict[str, Any] = {}
        with trio.move_on_after(_READY_S):
            async with self.client() as asking:
                while self.process.process.poll() is None:
                    try:
                        status = (await asking.get("/v1/status")).raise_for_status().json()
                    except httpx.HTTPError:
                        status = {}
                    peers = status.get("peers", {})
                    if status.get("ready") and (
                        not peers_too or peers["connected"] == peers["configured"]
                    ):
                        return status
                    await trio.sleep(_POLL_S)
        raise await self.process.failure(f"did not become ready (last status: {status or 'none'})")

    def client(self, timeout_s: float = _ANSWER_S) -> httpx.AsyncClient:
        """A client of its control socket."""
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket), verify=False)
        return httpx.AsyncClient(transport=transport, base_url="http://drld", timeout=timeout_s)

    async def ask(self, path: str) -> Any:
        """The daemon's answer to a request.

        Raises:
            MeasurementError: there is no answer for a long time.
        """
        async with self.client() as asking:
            try:
                return (await asking.get(path)).raise_for_status().json()
            except httpx.HTTPError as error:
                raise MeasurementError(f"{self.socket}{path}: {error!r}") from error

    def cpu_s(self) -> float:
        """Processor time that it has used, with its threads and the kernel's work for it.

        Raises:
            MeasurementError: it ended.
        """
        stat = self._proc("stat")
        fields = stat[stat.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def waited_s(self) -> float:
        """Time for which its main thread could run and had no processor.

        Raises:
            MeasurementError: it ended.
        """
        return int(self._proc("schedstat").split()[1]) / NS_PER_S

    def resident_bytes(self, field: str = "VmRSS") -> int:
        """The daemon's resident memory; `VmHWM` is its peak, the start included.

        Raises:
            MeasurementError: it ended.
        """
        for line in self._proc("status").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise MeasurementError(f"{self.process.name} ended")

    def clock(self) -> tuple[float, float]:
        """The time, and the processor time that the daemon has used: the start of a `cost`."""
        return time.monotonic(), self.cpu_s()

    def cost(self, since: tuple[float, float]) -> dict[str, float]:
        """The daemon's cost since a `clock`.

        Returns:
            `core_share` (processor time over time; 1.0 is a whole core), and its memory now and at
            most: `resident_bytes`, `peak_bytes`.
        """
        (begin_s, before_s), (end_s, used_s) = since, self.clock()
        return {
            "core_share": (used_s - before_s) / (end_s - begin_s),
            "resident_bytes": self.resident_bytes(),
            "peak_bytes": self.resident_bytes("VmHWM"),
        }

    def _proc(self, file: str) -> str:
        try:
            return Path(f"/proc/{self.pid}/{file}").read_text(encoding="ascii")
        except FileNotFoundError:
            raise MeasurementError(f"{self.process.name} ended") from None
