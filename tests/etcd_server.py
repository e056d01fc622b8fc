"""A real etcd for tests, one server or a cluster: started, looked into, killed, wiped, restored.

Its data is in a temporary folder.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from testbed.programs import program
from testbed.server_process import ServerProcess

DEADLINE_S = 60.0
_PLAIN: dict[str, Any] = {"trust_env": False, "verify": False}
"""Requests without TLS: reading the host's certificates takes longer than the rest of a request."""


@functools.cache
def _options() -> tuple[str, ...]:
    """Options that make tests fast, if the server knows them (3.4)."""
    help_ = subprocess.run([program("etcd"), "--help"], capture_output=True, text=True, check=False)
    fast = "--unsafe-no-fsync"
    return (fast,) if fast in help_.stdout + help_.stderr else ()


def _free_ports() -> Iterator[int]:
    """Free ports on 127.0.0.1, each once.

    A server that is down for a moment must find its own again, so they are not
    ephemeral ports of the kernel, nor those of another process of the same run.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 10_000 + _SPAN * (worker % 4)
    for number in itertools.count(64 * os.getpid()):
        port = first + number % _SPAN
        with contextlib.suppress(OSError):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            yield port


_SPAN = 5000
_PORTS = _free_ports()


class EtcdServer(ServerProcess):
    """One server; a cluster of its own, or part of an `EtcdCluster`."""

    def __init__(
        self, directory: Path, *arguments: str, namespace: str | None = None, scheme: str = "http"
    ) -> None:
        self.scheme = scheme
        self._directory = directory
        self.port, peer_port = (2379, 2380) if namespace else (next(_PORTS), next(_PORTS))
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.peer_url = peer = f"http://127.0.0.1:{peer_port}"
        directory.mkdir(exist_ok=True)
        super().__init__(
            "etcd",
            [
                *(program("etcd"), "--data-dir", str(directory / "data")),
                *("--listen-client-urls", self.url, "--advertise-client-urls", self.url),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"default={peer}"),
                # A server alone waits for no other's vote.
                *("--heartbeat-interval", "10", "--election-timeout", "100"),
                *_options(),
                *arguments,
            ],
            directory / "log",
            namespace=namespace,
            environment={**os.environ, "ETCD_UNSUPPORTED_ARCH": os.uname().machine},
        )

    def start(self) -> None:
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until it answers; one of a cluster does when it knows a leader."""
        self.ready(partial(self.within, self._answers))

    def _answers(self) -> bool | None:
        if self.scheme == "https":
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return httpx.get(f"{self.url}/health", **_PLAIN).json().get("health") == "true" or None

    def back_up(self) -> Path:
        """Copy what it has, to `restore` it."""
        self.kill()
        copy = self._directory / "backup"
        shutil.copytree(self._directory / "data", copy)
        self.start()
        return copy

    def restore(self, backup: Path) -> None:
        """Go back to a backup, and start."""
        self.wipe()
        shutil.copytree(backup, self._directory / "data")
        self.start()

    def wipe(self) -> None:
        """Lose everything."""
        self.kill()
        shutil.rmtree(self._directory / "data")

    def status(self) -> Any:
        """The server's report on itself and its cluster."""
        return self.call("maintenance/status", {})

    def call(self, path: str, request: Mapping[str, object]) -> Any:
        body = json.dumps(request)

        def post(version: str) -> httpx.Response:
            return httpx.post(f"{self.url}/{version}/{path}", content=body, **_PLAIN)

        answer = self.within(lambda: post("v3"))
        if answer.text.strip() in ("Not Found", "404 page not found"):  # etcd 3.3
            answer = self.within(lambda: post("v3beta"))
        return answer.raise_for_status().json()

    def put(self, key: str, value: str | bytes) -> int:
        raw = value.encode() if isinstance(value, str) else value
        answer = self.call("kv/put", {"key": b64(key.encode()), "value": b64(raw)})
        return int(answer["header"]["revision"])

    def delete(self, prefix: str) -> None:
        """Delete everything that begins so."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self.call("kv/deleterange", {"key": b64(prefix.encode()), "range_end": b64(end.encode())})

    def get(self, prefix: str) -> dict[str, bytes]:
        """Everything that begins so."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found = self.call("kv/range", {"key": b64(prefix.encode()), "range_end": b64(end.encode())})
        return {
            base64.b64decode(pair["key"]).decode(): base64.b64decode(pair.get("value", ""))
            for pair in found.get("kvs", [])
        }

    @property
    def revision(self) -> int:
        return int(self.call("kv/range", {"key": b64(b"x")})["header"]["revision"])

    def compact(self) -> None:
        """Forget the history."""
        self.call("kv/compaction", {"revision": str(self.revision)})


class EtcdCluster:
    """Three servers, of which two have to live."""

    def __init__(self, directory: Path) -> None:
        # What a loaded machine keeps: it must not elect another leader on its own.
        slower = ("--heartbeat-interval", "50", "--election-timeout", "500")
        names = ("one", "two", "three")
        self.servers = [EtcdServer(directory / name, "--name", name, *slower) for name in names]
        for server in self.servers:
            others = zip(names, self.servers, strict=True)
            urls = ",".join(f"{name}={other.peer_url}" for name, other in others)
            server.command += ["--initial-cluster", urls]

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self.servers)

    def at(self, url: str) -> EtcdServer:
        return self.servers[self.urls.index(url)]

    def start(self) -> None:
        """Start those that do not run."""
        for server in self.servers:
            if not server.runs:
                server.launch()
        for server in self.servers:
            server.wait()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def leader(self) -> EtcdServer:
        """The leader that this server believes in; there may be none for a moment."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for server in self.servers:
                if server.runs:
                    said = server.status()
                    if said.get("leader") == said["header"]["member_id"]:
                        return server
            assert time.monotonic() < deadline, "no server leads"
            time.sleep(0.02)


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()
