"""The resources that a starting daemon claims."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from drld.daemon.startup import claim_name
from drld.errors import ConfigError

FILE = Path("a.toml")


def test_one_daemon_at_a_time_has_a_name() -> None:
    name = f"claimed-by-{__name__}"
    with (
        claim_name(FILE, name),
        pytest.raises(ConfigError, match="another daemon of this name runs on this host"),
    ):
        claim_name(FILE, name)
    claim_name(FILE, name).close()


def test_a_host_that_has_no_descriptor_has_no_other_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", exhausted)
    with pytest.raises(ConfigError) as caught:
        claim_name(FILE, "a")
    assert str(caught.value) == (
        "a.toml: limiter.name: cannot reserve 'a' on this host: Too many open files"
    )
