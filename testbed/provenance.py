"""The origin of a result: the code that measured it, and its host."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from drld import compiled
from testbed import netns
from testbed.errors import HostError

ROOT = Path(__file__).resolve().parent.parent
_TESTBED = Path(__file__).resolve().parent
GIT = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT))
"""The checkout may belong to another user than root."""
_MEASURING = ("drld/**/*.py", "drld/**/*.so", "bpf/*", "testbed/*.py")
"""Files that decide what a run measures."""
_SIMULATING = ("drld/**/*.py", "testbed/*.py", "testbed/sim/**/*.py", "testbed/tcp/*.py")
_SHOWING = re.compile(r"plot.*|options|__main__")
"""Files of the testbed that only choose runs and show results."""


def provenance(*, simulated: bool = False) -> dict[str, Any]:
    """The origin of a result as part of its header."""
    return {
        "started_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "code": code(simulated=simulated),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "versions": {
            "python": _python(),
            "iproute2": _version(["ip", "-V"]),
            "iptables": _version(["iptables", "-V"]),
        },
    }


def head(*, quick: bool) -> dict[str, Any]:
    """The origin of a result that is not resumed, as `conditions` reads it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "taken": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit(),
        "quick": quick,
        "host": {
            "model": models[0] if models else platform.machine(),
            "processors": len(os.sched_getaffinity(0)),
            "kernel": ".".join(platform.release().split(".")[:2]),
            "python": _python(),
            "load": round(os.getloadavg()[0], 1),
        },
    }


def _python() -> str:
    return platform.python_version() + (", drld compiled" if compiled() else "")


def conditions(result: Mapping[str, Any], *chosen: str) -> str:
    """A sentence about how a result was measured; `chosen` are the user's choices."""
    host = result["host"]
    kind = "quick" if result["quick"] else "full"
    run = ", ".join([f"commit {result.get('commit', 'unknown')[:7]}", *chosen])
    return (
        f"A {kind} run of {result['taken']}, {run}: {host['processors']} processors "
        f"({host['model']}), Linux {host['kernel']}, Python {host['python']}"
    )


def code(*, simulated: bool = False) -> str:
    """A digest of the present files that decide what a run measures."""
    return digest(_SIMULATING if simulated else _MEASURING)


def commit() -> str:
    """The present commit; it ends in `-changed` if files differ from it."""
    try:
        head = netns.run([*GIT, "rev-parse", "HEAD"]).strip()
        changed = netns.run([*GIT, "status", "--porcelain", "-uno"]).strip()
    except HostError:
        return "unknown"
    return f"{head}-changed" if changed else head


def digest(patterns: tuple[str, ...]) -> str:
    """A digest of names and contents of the present files of these patterns, committed or not."""
    digest = hashlib.sha256()
    paths = {path for pattern in patterns for path in ROOT.glob(pattern)}
    for path in sorted(paths):
        if path.is_relative_to(_TESTBED) and _SHOWING.fullmatch(path.stem):
            continue
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _version(command: list[str]) -> str:
    try:
        return netns.run(command).strip()
    except HostError:
        return "none"
