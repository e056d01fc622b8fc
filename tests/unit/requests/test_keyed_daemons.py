"""Three real daemons over loopback, without any privilege: a limit for each user."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import trio

from tests.local_daemons import ROOT, pairs_of_ports, ports, running

KEY = "00112233445566778899aabbccddeeff"


def configurations(directory: Path, size: int) -> tuple[list[Path], list[str]]:
    """A fleet's files, and the URLs of its fronts."""
    gossip, http = pairs_of_ports(size), ports(size, socket.SOCK_STREAM)
    key = directory / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    files = []
    for own in range(size):
        text = f"""
[limiter]
name = "keyed{os.getpid()}-{own}"
listen = "127.0.0.1:{gossip[own]}"
control = "{directory}/{own}.sock"

[gossip]
keys = [{{ id = 1, file = "{key}" }}]

[requests]
listen = "127.0.0.1:{http[own]}"

[[limit]]
id = 1
name = "user"
rate = "1/h"
burst = 30
match = {{ namespace = "api", per = "user" }}
overrides = [{{ user = "bigco", burst = 60 }}]
"""
        for other in {*range(size)} - {own}:
            peer = f'[[peer]]\nname = "keyed{os.getpid()}-{other}"\n'
            text += f'\n{peer}address = "127.0.0.1:{gossip[other]}"\n'
        files.append(directory / f"{own}.toml")
        files[-1].write_text(text)
    return files, [f"http://127.0.0.1:{port}" for port in http]


class Fleet:
    """Clients of the fronts and of the control sockets."""

    def __init__(self, directory: Path, stack: AsyncExitStack, urls: list[str]) -> None:
        self.directory = directory
        self.fronts = [httpx.AsyncClient(base_url=url, timeout=60) for url in urls]
        sockets = [directory / f"{own}.sock" for own in range(len(urls))]
        self.controls = [
            httpx.AsyncClient(
                transport=httpx.AsyncHTTPTransport(uds=str(path)),
                base_url="http://drld",
                timeout=60,
            )
            for path in sockets
        ]
        for client in (*self.fronts, *self.controls):
            stack.push_async_callback(client.aclose)

    async def ask(self, own: int, user: str, cost: int = 1) -> httpx.Response:
        query = f"/v1/check?namespace=api&user={user}&cost={cost}"
        return await self.fronts[own].get(query)

    async def keys(self, own: int) -> dict[str, Any]:
        found: dict[str, Any] = (await self.controls[own].get("/v1/limits/user/keys")).json()
        return found

    async def until(self, own: int, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a state of the keys."""
        while not holds(found := await self.keys(own)):
            await trio.sleep(0.01)
        return found

    async def drlctl(self, own: int, *command: str) -> str:
        socket_path = str(self.directory / f"{own}.sock")
        run = await trio.run_process(
            [sys.executable, "-m", "drld.cli", "--socket", socket_path, *command],
            cwd=ROOT,
            capture_stdout=True,
        )
        return run.stdout.decode()


def used(report: dict[str, Any]) -> dict[int, int]:
    """How many keys have so much in use."""
    amounts = [round(it["used"]) for it in report["busiest"]]
    return {amount: amounts.count(amount) for amount in amounts}


async def test_a_user_has_one_bucket_at_three_daemons_and_a_killed_one_is_told_it(
    tmp_path: Path,
) -> None:
    files, urls = configurations(tmp_path, 3)
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(600))
        fleet = Fleet(tmp_path, stack, urls)
        processes = [await stack.enter_async_context(running(file)) for file in files]
        for own in range(3):
            await fleet.until(own, lambda it: it["peers"] == 2)
        # One limit, wherever alice asks. What is under way when two are asked at a time may pass:
        # here each answer comes before the next question, and deltas within some milliseconds.
        admitted = 0
        for turn in range(90):
            answer = await fleet.ask(turn % 3, "alice")
            admitted += answer.status_code == 200
        assert 30 <= admitted <= 33
        refused = answer.json()
        assert (refused["limit"], refused["admitted"]) == ("user", False)
        assert 3000 < refused["retry_after_s"] <= 3 * 3600
        assert answer.headers["ratelimit-policy"] == '"user";q=1;w=3600'
        # Others notice nothing, and one has a larger bucket.
        assert (await fleet.ask(0, "bob", 20)).json()["remaining"] == 10
        assert (await fleet.ask(1, "bigco", 50)).json()["remaining"] == 10
        assert (await fleet.ask(1, "carol", 50)).status_code == 429
        state = {admitted: 1, 20: 1, 50: 1}
        for own in range(3):
            await fleet.until(own, lambda it: used(it) == state)
        # Dead without a word; its peers tell it what it admitted itself.
        processes[0].kill()
        await processes[0].wait()
        await stack.enter_async_context(running(files[0]))
        report = await fleet.until(0, lambda it: used(it) == state)
        assert (await fleet.ask(0, "alice")).status_code == 429
        assert (await fleet.ask(0, "bob", 11)).status_code == 429
        assert (await fleet.ask(0, "bob", 10)).status_code == 200
        # Texts are known where they were asked.
        assert {it["text"] for it in report["busiest"]} == {None}
        assert {it["text"] for it in (await fleet.keys(1))["busiest"]} == {"alice", "bigco", None}
        assert {len(it["key"]) for it in report["busiest"]} == {16}
        shown = (await fleet.drlctl(1, "limit", "top", "user", "--count", "2")).splitlines()
        assert shown[1].split()[0] == "bigco"
        assert shown[3] == "keys with a ledger here: 3, at most 1000000; peers in contact: 2"
        report = json.loads(await fleet.drlctl(1, "limit", "top", "user", "--json"))
        assert report["bucket"] == "ledger"
        # Surfaces that all limits have, and those of the second socket.
        assert "user  ledger     enforce" in await fleet.drlctl(2, "limits")
        assert "deltas" in await fleet.drlctl(2, "status")
        metrics = (await fleet.controls[2].get("/metrics")).text
        assert 'drld_limit_keys{limit="user"} 3\n' in metrics
        assert "drld_deltas_peers 2\n" in metrics
        # A change is in force at once, and levels stay.
        await fleet.drlctl(1, "limit", "set", "user", "--burst", "40")
        assert (await fleet.ask(1, "alice", 40 - admitted)).status_code == 200
        assert (await fleet.ask(1, "alice")).status_code == 429
        # A limit that comes while the daemons run has keys as well.
        added = ("limit", "add", "--id", "2", "--name", "ip", "--rate", "1/h", "--burst", "3")
        for own in (1, 2):
            await fleet.drlctl(own, *added, "--namespace", "net", "--per", "ip,port")
        asked = {"namespace": "net", "descriptor": {"ip": "10.0.0.1", "port": "1"}, "cost": 3}
        assert (await fleet.fronts[1].post("/v1/check", json=asked)).status_code == 200
        one = {**asked, "cost": 1}
        while (await fleet.fronts[2].post("/v1/check", json=one)).json()["admitted"]:
            await trio.sleep(0.01)
        history = await fleet.drlctl(2, "history")
        assert "ip" in history
