"""A real daemon is reloaded many times while clients of three protocols use its limits up."""

from __future__ import annotations

import os
import socket
from collections import Counter
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

import httpx
import trio

from drld.client import Question
from drld.client.on_trio import Client
from testbed.bench.rls.client import Client as EnvoyClient
from tests.local_daemons import pairs_of_ports, ports, running
from tests.rls_messages import request

from .grpc_peer import framed

USERS = [f"user{number}" for number in range(20)]
BURST, BIG = 100, 300
LEAST_RELOADS = 10
HTTP, BATCHES, CALLS = 200, 40, 60
"""What a client asks: requests over HTTP, batches, or groups of calls over gRPC."""
BATCH, GROUP = 50, 10


def configuration(directory: Path, gossip: int, http: int, change: int, burst: int = BURST) -> str:
    """A limit for each user; `change` chooses the other limits, all rates, and the overrides.

    No rate brings back a token within the test.
    """
    rate = 1 + change % 3
    text = f"""
[limiter]
name = "reload{os.getpid()}"
listen = "127.0.0.1:{gossip}"
control = "{directory}/control.sock"

[requests]
listen = ["127.0.0.1:{http}", "{directory}/requests.sock"]

[[limit]]
id = 1
name = "all"
rate = "{100_000 + change}/s"
burst = {1_000_000 - change}
match = {{ namespace = "api" }}

[[limit]]
id = 2
name = "user"
rate = "{rate}/h"
burst = {burst}
match = {{ namespace = "api", per = "user" }}
overrides = [
    {{ user = "big", rate = "{4 - rate}/h", burst = {BIG} }},
    {{ user = "user{change % 5}", rate = "5/h", burst = {burst} }},
]
"""
    if change % 2:
        text += f"""
[[limit]]
id = {10 + change}
name = "added"
rate = "100000/s"
burst = 1000000
match = {{ namespace = "api", where = {{ plan = "free" }} }}
"""
    return text


def question(user: str, cost: int = 1, at_least: int | None = None) -> Question:
    return Question("api", {"user": user, "plan": "free"}, cost, at_least=at_least)


async def test_levels_are_kept_and_no_client_gets_an_error(tmp_path: Path) -> None:
    (gossip,), (http,) = pairs_of_ports(1), ports(1, socket.SOCK_STREAM)
    file, path = tmp_path / "drld.toml", str(tmp_path / "requests.sock")
    file.write_text(configuration(tmp_path, gossip, http, 0))
    admitted: Counter[str] = Counter()
    clients, reloads = 6, 0
    transport = httpx.AsyncHTTPTransport(uds=f"{tmp_path}/control.sock")
    control = httpx.AsyncClient(transport=transport, base_url="http://drld", timeout=60)

    async def reload(change: int, burst: int = BURST) -> None:
        file.write_text(configuration(tmp_path, gossip, http, change, burst))
        answer = await control.post("/v1/reload")
        assert answer.status_code == 200, answer.text

    async def ask_by_http(rng: Random) -> None:
        nonlocal clients
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{http}", timeout=60) as client:
            for _ in range(HTTP):
                user = rng.choice([*USERS, "big"])
                answer = await client.get(f"/v1/check?namespace=api&user={user}&plan=free")
                assert answer.status_code in {200, 429}, answer.text
                admitted[user] += answer.json()["granted"]
        clients -= 1

    async def ask_in_batches(rng: Random) -> None:
        nonlocal clients
        async with Client(path, timeout_s=60) as client:
            for _ in range(BATCHES):
                users = [rng.choice([*USERS, "big"]) for _ in range(BATCH)]
                answers = await client.ask([question(user) for user in users])
                for user, answer in zip(users, answers, strict=True):
                    assert (answer.error, answer.degraded) == (None, False)
                    admitted[user] += answer.granted
        clients -= 1

    async def ask_by_grpc(rng: Random) -> None:
        nonlocal clients
        with closing(await trio.to_thread.run_sync(EnvoyClient, http)) as client:
            for _ in range(CALLS):
                user = rng.choice([*USERS, "big"])
                call = framed(request({"user": user, "plan": "free"}).SerializeToString())
                # A call that fails is no refusal, so it would count as admitted.
                refused = await trio.to_thread.run_sync(client.ask, [call] * GROUP)
                admitted[user] += GROUP - refused
        clients -= 1

    async with running(file), control, Client(path, timeout_s=60) as client:
        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                for number, ask in enumerate((ask_by_http, ask_in_batches, ask_by_grpc) * 2):
                    nursery.start_soon(ask, Random(number))
                for reloads in count(1):
                    await reload(reloads)
                    if not clients and reloads >= LEAST_RELOADS:
                        break

            async def rest() -> None:
                """Take what each user has left."""
                for user in (*USERS, "big"):
                    (answer,) = await client.ask([question(user, BIG, at_least=1)])
                    admitted[user] += answer.granted

            await rest()
            full = dict.fromkeys(USERS, BURST)
            assert admitted == {**full, "big": BIG}
            await reload(reloads, BURST + 50)
            await rest()
            assert admitted == {**dict.fromkeys(USERS, BURST + 50), "big": BIG}
            await reload(reloads + 1, BURST)
            await rest()
            assert sum(admitted.values()) == (BURST + 50) * len(USERS) + BIG
