"""A real daemon in a namespace: started, waited for, steered and stopped like a service."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from . import preloaded
from .preloaded import ROOT, Forked
from .topology import DEADLINE_S, wait_for

CENTRAL = (
    'rate = "10kbit"\nburst = "10kB"\nallocator = "ctb"\nmatch = { out = "out0", protocol = "udp" }'
)
"""1,250 bytes/s: a burst of ten packets passes, and then one each 0.8 s. UDP alone, for a new
interface reports the multicast groups that it is in."""
SHARED = 'rate = "10mbit"\nburst = "75kB"\nallocator = "fps"\nmatch = { out = "out0" }'


on_one = pytest.mark.parametrize("datapath", ["kernel"], indirect=True)
"""Marks tests in which no datapath takes part: of files, peers and the control socket."""


class DaemonHost:
    """One `drld` process under a service manager that the test plays."""

    def __init__(self, namespace: str, directory: Path, name: str, datapath: str = "auto") -> None:
        self.namespace = namespace
        self.datapath = datapath
        self.environment: dict[str, str] = {}
        self.wrapper: Sequence[str] = ()
        """Program and arguments that start the daemon's."""
        self.arguments: Sequence[str] = ()
        """Further arguments of the daemon."""
        self.name = name
        self.config = directory / f"{name}.toml"
        self.socket = directory / f"{name}.sock"
        self._notify_path = directory / f"{name}.notify"
        self.log_path = directory / f"{name}.log"
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(str(self._notify_path))
        self._process: subprocess.Popen[bytes] | Forked | None = None
        self.states: list[str] = []
        """The states that the daemon has sent to the service manager."""

    def configure(
        self,
        limits: Mapping[str, str],
        *,
        listen: str = "127.0.0.1:7946",
        peers: Mapping[str, str] | None = None,
        firewall: str = "auto",
        fabric: str = "mesh",
        gossip: Sequence[str] = (),
    ) -> None:
        """Write the configuration; `limits` maps a limit's name to the lines of its table.

        `gossip` are further lines of that table.
        """
        lines = [
            "[limiter]",
            f'name = "{self.name}"',
            f'listen = "{listen}"',
            f'control = "{self.socket}"',
            "[packets]",
            f'datapath = "{self.datapath}"',
            f'firewall = "{firewall if self.datapath != "kernel" else "auto"}"',
            "[gossip]",
            f'fabric = "{fabric}"',
            *gossip,
        ]
        for peer, address in (peers or {}).items():
            lines += ["[[peer]]", f'name = "{peer}"', f'address = "{address}"']
        if not limits:
            lines.insert(0, "limit = []")
        for number, (limit, body) in enumerate(limits.items(), start=1):
            lines += ["[[limit]]", f"id = {number}", f'name = "{limit}"', body]
        self.config.write_text("\n".join(lines) + "\n")

    def started(self, limits: Mapping[str, str], **options: Any) -> DaemonHost:
        """The same daemon, configured and ready; `options` are those of `configure`."""
        self.configure(limits, **options)
        self.start()
        return self

    def start(self) -> None:
        """Start it and wait until it says that it is ready."""
        self.spawn()
        assert self.wait_for_state("READY=1"), self.log

    def spawn(self, *program: str) -> None:
        """Start it, or a Python program that stands for it: a process that imports its modules."""
        environment = {"NOTIFY_SOCKET": str(self._notify_path), **self.environment}
        arguments = ("--config", str(self.config), *self.arguments)
        log = self.log_path
        if not program and not self.wrapper:
            self._process = Forked(
                "drld",
                *arguments,
                output=log,
                errors=log,
                namespace=self.namespace,
                environment=environment,
            )
            return
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace, *self.wrapper),
                    *(sys.executable, *(program or ("-m", "drld")), *arguments),
                ],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=file,
                stderr=file,
            )

    def wait_for_state(self, state: str) -> bool:
        """Wait until it has told the service manager so since the last call; or has ended."""
        while True:
            ready, _, _ = select.select([self._notify], [], [], DEADLINE_S)
            if not ready:
                return False
            told = self._notify.recv(4096).decode()
            self.states.append(told)
            if state in told.splitlines():
                return True

    def ctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run drlctl."""
        done = preloaded.run("drld.cli", "--socket", str(self.socket), *arguments)
        if check:
            done.check_returncode()
        return done

    def ask(self, *arguments: str) -> Any:
        """The output of drlctl with --json."""
        return json.loads(self.ctl(*arguments, "--json").stdout)

    def limit(self, name: str) -> Any:
        """One limit's report."""
        return self.get(f"/v1/limits/{name}")

    def counted(self, name: str, packets: int) -> Any:
        """One limit's report, once so many packets have arrived under it."""
        report = wait_for(lambda: self.limit(name), lambda seen: seen["arrived_packets"] == packets)
        assert report["arrived_packets"] == packets
        return report

    def get(self, path: str) -> Any:
        """An answer of the control API itself: drlctl takes a moment to start."""
        return self._request("GET", path, None)

    def post(self, path: str, body: object = None) -> Any:
        """Have the control API do something."""
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: object) -> Any:
        transport = httpx.HTTPTransport(uds=str(self.socket), verify=False)
        with httpx.Client(
            transport=transport, base_url="http://drld", timeout=DEADLINE_S
        ) as client:
            return client.request(method, path, json=body).raise_for_status().json()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit status of the daemon."""
        assert self._process is not None
        status = self._process.wait(DEADLINE_S)
        self._process = None
        return status

    def stop(self) -> int:
        """Stop it as a service manager does; return the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End it without a chance to clean up, if it runs, and close what the test holds."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self.wait()

    def close(self) -> None:
        """End it whatever it does."""
        self.kill()
        self._notify.close()

    @property
    def log(self) -> str:
        """The output of the daemon."""
        return self.log_path.read_text()

    def wait_for_log(self, text: str) -> bool:
        """Wait until it has printed this."""
        return text in wait_for(lambda: self.log, lambda log: text in log)


Daemons = Callable[[str], DaemonHost]
"""Makes a daemon by its name."""
