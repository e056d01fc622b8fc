"""The daemon's tasks: a stop while it starts."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import trio

from drld.daemon.daemon import Daemon
from drld.daemon.reloader import read_configuration
from drld.requests.registered.daemon.request_plane import RequestPlane

LIMITS = """
[limiter]
name = "stopped-{port}"
listen = "127.0.0.1:{port}"
control = "{folder}/control.sock"
[requests]
listen = ["{folder}/requests.sock"]
[[limit]]
id = 1
name = "calls"
rate = "10/s"
match = {{ namespace = "edge" }}
"""


async def test_a_stop_while_planes_start_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plane of messages, which comes last, finds that all servers have ended."""

    async def serve(plane: RequestPlane, *, task_status: trio.TaskStatus[Any]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await plane._context.stopping.wait()
        task_status.started()

    monkeypatch.setattr(RequestPlane, "serve", serve)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "drld.toml"
    file.write_text(LIMITS.format(port=port, folder=tmp_path))
    daemon = Daemon(file, read_configuration(file))
    with daemon._claim, trio.fail_after(60):
        await daemon.run()
    assert not daemon.ready
    assert not (tmp_path / "control.sock").exists()
