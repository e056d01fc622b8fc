"""The firewalls that can contain the rules of nfqueue."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from drld.capture.nft_rules import nft_install
from drld.capture.queue_hooks import Hook
from drld.police.direction import Direction

from .service import run

_LEGACY = "iptables-legacy"


def firewalls() -> list[str]:
    """The firewalls that this host has and its kernel accepts."""
    found = ["iptables"]
    script = nft_install("probe", [Hook("lo", Direction.IN, True, (4, 6))], 0)
    if subprocess.run(["nft", "-c", "-f", "-"], input=script.encode(), check=False).returncode == 0:
        found.append("nft")
    if shutil.which(_LEGACY) and run(_LEGACY, "-t", "mangle", "-S", check=False).returncode == 0:
        found.append(_LEGACY)
    return found


def legacy_path() -> Path:
    """A folder in which the legacy tools have the names of the current ones."""
    directory = Path("/run/legacy")
    directory.mkdir(exist_ok=True)
    # As after a boot: no process has used them yet.
    Path("/run/xtables.lock").unlink(missing_ok=True)
    for family in ("iptables", "ip6tables"):
        for verb in ("", "-save", "-restore"):
            tool = shutil.which(f"{family}-legacy{verb}")
            assert tool
            link = directory / f"{family}{verb}"
            link.unlink(missing_ok=True)
            link.symlink_to(tool)
    return directory


def rules() -> str:
    """All rules of this network namespace."""
    return "".join(
        run(*command).stdout
        for command in (["nft", "list", "ruleset"], ["iptables-legacy-save"])
        if shutil.which(command[0])
    )
