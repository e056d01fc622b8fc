"""Limits on requests in a registry: real daemons on a real etcd, without any privilege."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import trio

from ...etcd_server import EtcdServer
from ...local_daemons import ROOT, pairs_of_ports, ports, running


def configuration(directory: Path, number: int, server: EtcdServer, gossip: int, http: int) -> Path:
    """A limiter without a limit and without a peer in its file."""
    file = directory / f"{number}.toml"
    file.write_text(f"""
[limiter]
name = "requests{os.getpid()}-{number}"
listen = "127.0.0.1:{gossip}"
control = "{directory}/{number}.sock"

[registry]
endpoints = ["{server.url}"]
fleet = "requests"
cache = "{directory}/{number}.cache"

[requests]
listen = "127.0.0.1:{http}"
""")
    return file


async def test_a_fleet_in_etcd_has_limits_on_requests_and_on_keys(
    server: EtcdServer, tmp_path: Path
) -> None:
    gossip, http = pairs_of_ports(2), ports(2, socket.SOCK_STREAM)
    files = [
        configuration(tmp_path, number, server, *its)
        for number, its in enumerate(zip(gossip, http, strict=True))
    ]

    async def drlctl(*words: str) -> str:
        done = await trio.run_process(
            [sys.executable, "-m", "drld.cli", "--socket", f"{tmp_path}/0.sock", *words],
            cwd=ROOT,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
        )
        return done.stdout.decode()

    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(300))
        for file in files:
            await stack.enter_async_context(running(file))
        fronts = [
            await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
            )
            for port in http
        ]

        async def until(own: int, left: dict[str, int]) -> None:
            """Wait until a limiter says that alice has this much left of each limit on keys."""
            query = "/v1/check?namespace=api&user=alice&cost=0"
            found: dict[str, int] | None = None
            while found != left:
                await trio.sleep(0.01)
                limits = (await fronts[own].get(query)).json()["limits"]
                # Time refills a millionth of a request between two questions.
                found = {it["limit"]: int(it["remaining"]) for it in limits if it["limit"] != "all"}

        added = ("limit", "add", "--fleet", "--rate", "9/d")
        await drlctl(*added, "--name", "all", "--burst", "10", "--namespace", "api")
        await drlctl(
            *added, "--name", "user", "--burst", "3", "--namespace", "api", "--per", "user"
        )
        for own in range(2):
            await until(own, {"user": 3})
        # A user's bucket is the fleet's: what one limiter admits, the other knows of.
        assert (await fronts[0].get("/v1/check?namespace=api&user=alice&cost=3")).is_success
        await until(1, {"user": 0})
        refused = await fronts[1].get("/v1/check?namespace=api&user=alice")
        assert (refused.status_code, refused.json()["limit"]) == (429, "user")
        # A change in the registry is in force at both, and levels stay.
        await drlctl("limit", "set", "user", "--fleet", "--burst", "5")
        for own in range(2):
            await until(own, {"user": 2})
        await drlctl("limit", "remove", "user", "--fleet")
        for own in range(2):
            await until(own, {})
        assert "all" in await drlctl("limit", "show", "--fleet")
