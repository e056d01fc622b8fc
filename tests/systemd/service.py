"""The unit as an operator uses it: with systemctl and the journal."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLONE = Path("/opt/drld")
CONFIG = Path("/etc/drld/drld.toml")
UNIT = Path("/etc/systemd/system/drld.service")
CACHE = Path("/var/cache/drld")
DEADLINE_S = 120.0

CONTENT = """
[limiter]
name = "lim1"
listen = "{listen}"
{lines}

[[limit]]
id = 1
name = "a"
rate = "{rate}"
burst = "75kB"
allocator = "ctb"
match = {{ out = "{device}", protocol = "udp" }}
"""


def run(
    *command: str | Path, check: bool = True, deadline_s: float = DEADLINE_S
) -> subprocess.CompletedProcess[str]:
    """Run a command, and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=deadline_s)
    if check:
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


class Service:
    """`drld.service`."""

    device = "eth1"

    def __init__(self) -> None:
        self._since = time.time()

    def configure(self, *lines: str, rate: str = "10mbit", listen: str = "127.0.0.1:7946") -> None:
        """Write the configuration, with these lines after those of `[limiter]`."""
        CONFIG.write_text(
            CONTENT.format(lines="\n".join(lines), rate=rate, listen=listen, device=self.device)
        )

    def set(self, *lines: str) -> None:
        """Replace settings of the unit's section Service; without any, none are replaced."""
        directory = UNIT.with_name("drld.service.d")
        shutil.rmtree(directory, ignore_errors=True)
        if lines:
            directory.mkdir()
            (directory / "test.conf").write_text("\n".join(["[Service]", *lines, ""]))
        run("systemctl", "daemon-reload")

    def systemctl(self, verb: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run systemctl."""
        return run("systemctl", verb, "drld", check=check)

    def journal(self) -> str:
        """The journal of the unit since this object was made."""
        run("journalctl", "--sync", check=False)
        return run(
            *("journalctl", "--no-pager", "--quiet", "--output=short-precise", "--unit=drld"),
            f"--since=@{self._since:.6f}",
        ).stdout

    def wait_for(self, what: Callable[[], bool], why: str) -> None:
        """Wait until a condition holds; fail after two minutes."""
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < deadline, f"{why}\n{self.journal()}"
            time.sleep(0.02)

    def show(self, name: str) -> str:
        """A property, by `systemctl show`."""
        return run("systemctl", "show", "--value", f"--property={name}", "drld").stdout.strip()

    @property
    def state(self) -> str:
        """The state of the unit, such as `active` or `failed`."""
        return self.show("ActiveState")

    @property
    def pid(self) -> int:
        """Process id of the daemon; 0 if none runs."""
        return int(self.show("MainPID"))

    def kill(self, signal: int) -> int:
        """Send the daemon a signal; return its process id."""
        pid = self.pid
        assert pid > 1
        os.kill(pid, signal)
        return pid

    def wait_for_next(self, pid: int) -> None:
        """Wait until a daemon with another process id is ready."""
        self.wait_for(
            lambda: self.pid not in (0, pid) and self.state == "active", "no daemon follows"
        )

    def ctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run drlctl as root."""
        return run(CLONE / ".venv/bin/drlctl", *arguments, check=check)

    def ask(self, *arguments: str) -> Any:
        """The JSON output of drlctl."""
        return json.loads(self.ctl(*arguments, "--json").stdout)
