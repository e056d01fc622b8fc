"""The resources that a starting daemon claims."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drld.daemon.startup import claim_name
from drld.errors import ConfigError
from tests.unit.config.good import GOOD

FILE = Path("a.toml")


def test_one_daemon_at_a_time_has_a_name() -> None:
    name = f"claimed-by-{__name__}"
    with (
        claim_name(FILE, name),
        pytest.raises(ConfigError, match="another daemon of this name runs on this host"),
    ):
        claim_name(FILE, name)
    claim_name(FILE, name).close()


def test_a_start_without_descriptors_names_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", exhausted)
    with pytest.raises(ConfigError) as caught:
        claim_name(FILE, "a")
    assert str(caught.value) == (
        "a.toml: limiter.name: cannot reserve 'a' on this host: Too many open files"
    )


HANGUP_AT_THE_IMPORT = """
import os, signal, sys, types
from drld import daemon

class CommandLine(types.ModuleType):
    def __getattr__(self, name):
        os.kill(os.getpid(), signal.SIGHUP)
        return lambda argv: signal.SIGHUP in signal.sigpending()

name = "drld.daemon.command_line"
sys.modules[name] = daemon.command_line = CommandLine(name)
del daemon.command_line
print(daemon.main([]))
"""


def test_a_reload_that_is_asked_for_too_early_waits_for_the_start() -> None:
    """SIGHUP would end the process before its handler is there."""
    done = subprocess.run(
        [sys.executable, "-c", HANGUP_AT_THE_IMPORT], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_check_whose_result_cannot_be_written_fails_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(GOOD.replace('"eth1"', '"lo"'))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "drld", "--check", "--config", str(file)],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        1,
        b"drld: standard output: No space left on device\n",
    )
