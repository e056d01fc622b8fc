"""scripts/deploy: a host that refuses its files keeps those that it had; wrong names are told.

The host is this one, with a private /etc; ssh is a shell, and the daemon and systemd are stubs.
The package's own test deploys to real daemons (tests/systemd/package_in_clean_root.py).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.drlctl import invoke

DEPLOY = Path(__file__).parents[2] / "scripts" / "deploy"
STUBS = {
    "ssh": 'shift; exec bash -c "$1"',
    "install": 'args=("$@"); [[ $1 == -o ]] && args=("${@:3}"); exec /usr/bin/install "${args[@]}"',
    "runuser": 'exit "$REFUSES"',
    "systemctl": 'exit "$([[ $* == *is-active* ]] && echo 1 || echo 0)"',
}


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    for name, text in STUBS.items():
        stub = tmp_path / name
        stub.write_text(f"#!/bin/bash\n{text}\n")
        stub.chmod(0o755)
    hosts = ("lim1=fd00::1", "lim2=fd00::2")
    assert invoke("fleet", "init", tmp_path / "edge", *hosts).exit_code == 0
    return tmp_path / "edge"


def deployed(fleet: Path, refuses: int) -> str:
    """The key and the file that a host has after a deployment over old ones."""
    host = f"""
        mount -t tmpfs none /etc && mkdir /etc/drld && cd /etc/drld
        echo old > fleet.key && echo old > drld.toml
        {DEPLOY} {fleet} lim2; echo "status $?"
        head -v fleet.key drld.toml; ls
    """
    stubs = {"PATH": f"{fleet.parent}:{os.environ['PATH']}", "REFUSES": str(refuses)}
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", host],
        env={**os.environ, **stubs},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "lim2 (fd00::2)\n"
    return done.stdout


def test_a_host_that_refuses_a_file_keeps_its_key_and_file(fleet: Path) -> None:
    said = deployed(fleet, refuses=2)
    assert said == "\n".join(
        [
            *("status 2", "==> fleet.key <==", "old", "", "==> drld.toml <==", "old"),
            *("drld.toml", "fleet.key", ""),
        ]
    )
    said = deployed(fleet, refuses=0)
    assert said.startswith("status 0\n")
    assert (fleet / "fleet.key").read_text() in said
    assert 'name = "lim2"' in said
    assert said.endswith("drld.toml\nfleet.key\n")


def test_wrong_usage_touches_no_host(fleet: Path) -> None:
    for arguments, said in (
        ((), "usage: scripts/deploy DIRECTORY"),
        ((fleet.parent,), "usage: scripts/deploy DIRECTORY"),
        ((fleet, "lim"), f"{fleet}/hosts: has no host lim\n"),
    ):
        done = subprocess.run([DEPLOY, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(said)
