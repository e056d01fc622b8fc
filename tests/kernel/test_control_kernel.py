"""Access of other users to the control socket, and the daemon's record of them."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from drld.control.server import serve
from drld.errors import ConfigError
from tests.certificates import Certificate, authority, signed
from tests.control_fake import FakeDaemon

from .daemon_host import CENTRAL, DaemonHost
from .topology import Topology

STRANGER, GROUP, OTHER_GROUP = 64321, 64322, 64323
"""Ids of no user and no group."""

# Debian's interpreter: that of the tests may lie where strangers may not go.
CLIENT = ["/usr/bin/python3", "-I", "-c"]
RELOAD = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
except PermissionError:
    sys.exit("refused")
client.settimeout(30)
client.sendall(b"POST /v1/reload HTTP/1.1\\r\\nHost: drld\\r\\n\\r\\n")
print(client.recv(4096).decode().split()[1])
"""


@pytest.fixture
def path() -> Iterator[Path]:
    """The path of a socket in a directory that every user may enter."""
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "lim1.sock"


def reload_as_stranger(path: Path, groups: list[int]) -> tuple[int, str]:
    """Process id, and the status of the answer or `refused`; the first group is the main one."""
    with subprocess.Popen(
        [*CLIENT, RELOAD, str(path)],
        user=STRANGER,
        group=groups[0],
        extra_groups=groups[1:],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd="/",
    ) as process:
        said, _ = process.communicate(timeout=60)
    return process.pid, said.strip()


@pytest.mark.parametrize(
    ("group", "groups", "answer"),
    [
        (None, [OTHER_GROUP], "refused"),
        (None, [OTHER_GROUP, GROUP], "refused"),
        (GROUP, [OTHER_GROUP], "refused"),
        (GROUP, [OTHER_GROUP, GROUP], "200"),
        (GROUP, [GROUP], "200"),
    ],
)
async def test_only_the_group_may_open_the_socket(
    path: Path,
    caplog: pytest.LogCaptureFixture,
    group: int | None,
    groups: list[int],
    answer: str,
) -> None:
    caplog.set_level(logging.INFO, logger="drld.control")
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, FakeDaemon(), path, group)
        pid, said = await trio.to_thread.run_sync(reload_as_stranger, path, groups)
        nursery.cancel_scope.cancel()
    assert said == answer
    changed = f"POST /v1/reload by uid {STRANGER}, gid {groups[0]}, pid {pid}: 200"
    assert [entry.getMessage() for entry in caplog.records] == [changed] * (said == "200")


async def test_the_socket_is_never_open_to_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket's mode when it gets its group does not depend on the umask."""
    seen = []
    give = os.chown

    def look(file: Path, uid: int, gid: int, *, follow_symlinks: bool) -> None:
        seen.append(stat.S_IMODE(path.stat().st_mode))
        give(file, uid, gid, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(os, "chown", look)
    umask = os.umask(0)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, FakeDaemon(), path, GROUP)
            status = path.stat()
            nursery.cancel_scope.cancel()
    finally:
        os.umask(umask)
    assert seen == [0o600]
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, GROUP)


async def test_a_missing_group_is_an_error_and_leaves_nothing(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        await serve(FakeDaemon(), path, "no-such-group")
    assert caught.value.problems == [
        "limiter.control_group: 'no-such-group': no such group on this host"
    ]
    assert not path.exists()


def test_the_daemon_gives_its_socket_to_the_group(topology: Topology, tmp_path: Path) -> None:
    daemon = DaemonHost(topology.names["limiter"], tmp_path, "lim1", "nfqueue")
    try:
        daemon.configure({"customer-a": CENTRAL})
        text = daemon.config.read_text()
        grouped = text.replace("[limiter]", f"[limiter]\ncontrol_group = {GROUP}")
        daemon.config.write_text(grouped)
        daemon.start()
        status = daemon.socket.stat()
        assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o660, GROUP)
        daemon.ctl("reload")
        assert daemon.wait_for_log("POST /v1/reload by uid 0, gid 0, pid ")
        daemon.config.write_text(text)
        refused = daemon.ctl("reload", check=False)
        assert "limiter.control_group: cannot change from 64322 to the default" in refused.stderr
        daemon.ctl("limit", "set", "customer-a", "--rate", "20kbit")
        shown = daemon.get("/v1/live")
        kinds = [event["kind"] for event in shown["events"]]
        assert kinds == ["daemon", "reload", "fault", "change"]
        (limit,) = shown["limits"]
        assert (limit["name"], limit["rate_bps"], limit["unsaved"]) == (
            *("customer-a", 20_000, ["rate"]),
        )
        assert (limit["told"], shown["peers"], shown["status"]["limits"]) == ([], [], 1)
        assert daemon.stop() == 0
    finally:
        daemon.close()


def test_metrics_over_tls_outlive_a_bad_certificate(topology: Topology, tmp_path: Path) -> None:
    first, second = (authority(tmp_path, name) for name in ("first", "second"))
    own = Certificate(tmp_path / "own.pem", tmp_path / "own.key")
    before, after = (
        signed(tmp_path, f"by-{ca.cert.stem}", ca, "serverAuth") for ca in (first, second)
    )
    daemons = [DaemonHost(topology.names["limiter"], tmp_path, name) for name in ("lim1", "lim2")]

    def metrics(ca: Certificate) -> str:
        done = subprocess.run(
            [
                *("ip", "netns", "exec", topology.names["limiter"], "curl", "--silent"),
                *("--show-error", "--cacert", str(ca.cert), "https://127.0.0.1:9617/metrics"),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.stdout or done.stderr

    def take(files: Certificate) -> None:
        own.cert.write_bytes(files.cert.read_bytes())
        own.key.touch(0o600)
        own.key.write_bytes(files.key.read_bytes())

    take(before)
    try:
        for daemon, listen in zip(daemons, ("127.0.0.1:7946", "127.0.0.2:7946"), strict=True):
            daemon.configure({}, listen=listen)
            with daemon.config.open("a") as config:
                config.write(
                    f'[http]\nlisten = "127.0.0.1:9617"\ncertificate = "{own.cert}"\n'
                    f'key = "{own.key}"\n'
                )
        lim1, lim2 = daemons
        lim1.start()
        assert "\ndrld_ready 1\n" in metrics(first)
        lim2.spawn()
        assert lim2.wait() == 3
        assert "drld: http.listen: cannot bind 127.0.0.1:9617: Address already" in lim2.log
        own.cert.write_text("none")
        refused = lim1.ctl("reload", check=False)
        said = f"http.certificate: {own.cert}: must have certificates in PEM form"
        assert refused.returncode == 1
        assert said in refused.stderr
        assert "\ndrld_config_reload_refused 1\n" in metrics(first)
        take(after)
        lim1.ctl("reload")
        assert "\ndrld_config_reload_refused 0\n" in metrics(second)
        assert "certificate" in metrics(first)
        assert lim1.stop() == 0
    finally:
        for daemon in daemons:
            daemon.close()
