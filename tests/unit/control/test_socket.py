"""The control socket: whose it is, and what of others is in its place."""

from __future__ import annotations

import errno
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from drld.control.server import serve
from drld.errors import ConfigError
from tests.control_fake import FakeDaemon, client, served


async def test_the_socket_is_for_owner_and_group_and_goes_with_the_server(
    daemon: FakeDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "a" / "b" / "lim1.sock"
    async with served(daemon, path):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o660
    assert not path.exists()


async def test_a_stale_socket_is_replaced(daemon: FakeDaemon, path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    assert path.is_socket()
    async with served(daemon, path), client(path) as http_client:
        assert (await http_client.get("/v1/status")).status_code == 200


async def test_a_live_daemon_is_not_pushed_aside(daemon: FakeDaemon, path: Path) -> None:
    async with served(daemon, path), client(path) as http_client:
        with pytest.raises(ConfigError) as caught:
            await serve(FakeDaemon(), path)
        assert caught.value.problems == [
            f"limiter.control: {path}: another daemon answers there; stop it, or use another path"
        ]
        assert (await http_client.get("/v1/status")).status_code == 200


async def test_a_folder_that_is_not_the_user_s_has_a_remedy(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError) as caught:
        await serve(daemon, path)
    assert caught.value.problems == [
        f"limiter.control: {path}: Permission denied; set limiter.control, or the variable "
        "XDG_RUNTIME_DIR"
    ]


def make_file(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("precious")


def make_link(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/nonexistent")


@pytest.mark.parametrize("make", [make_file, make_link, lambda path: path.mkdir(parents=True)])
async def test_a_file_that_is_no_socket_is_left_alone(
    daemon: FakeDaemon, path: Path, make: Callable[[Path], None]
) -> None:
    make(path)
    with pytest.raises(ConfigError) as caught:
        await serve(daemon, path)
    assert caught.value.problems == [f"limiter.control: {path}: is there already, and is no socket"]
    assert path.exists() or path.is_symlink()


async def test_an_impossible_path_is_a_clear_error(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"^limiter\.control: .*: (Not a directory|File exists)"):
        await serve(daemon, tmp_path / "file" / "lim1.sock")
    with pytest.raises(ConfigError, match="path too long"):
        await serve(daemon, tmp_path / ("x" * 108))


async def test_a_successors_socket_is_left_alone(daemon: FakeDaemon, path: Path) -> None:
    async with served(daemon, path):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
    assert path.is_socket()
