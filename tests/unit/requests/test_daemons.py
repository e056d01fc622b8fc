"""Two real daemons over loopback, without any privilege: one limit, and requests at both."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import trio

from tests.local_daemons import ROOT, pairs_of_ports, ports, running

PAGE = ROOT / "docs" / "requests.md"
EXAMPLE = ROOT / "docs" / "requests.example.toml"


def configurations(directory: Path, size: int) -> tuple[list[Path], list[str]]:
    """A fleet's files, made from the example, and the URLs of its fronts."""
    gossip, http = pairs_of_ports(size), ports(size, socket.SOCK_STREAM)
    files = []
    for own in range(size):
        text = EXAMPLE.read_text()
        for old, new in (
            ("requests1", f"requests{os.getpid()}-{own}"),
            ("7947", str(gossip[own])),
            ("8099", str(http[own])),
            ("[requests]", f'control = "{directory}/{own}.sock"\n\n[requests]'),
        ):
            assert old in text
            text = text.replace(old, new)
        for other in {*range(size)} - {own}:
            peer = f'[[peer]]\nname = "requests{os.getpid()}-{other}"\n'
            text += f'\n{peer}address = "127.0.0.1:{gossip[other]}"\n'
        files.append(directory / f"{own}.toml")
        files[-1].write_text(text)
    return files, [f"http://127.0.0.1:{port}" for port in http]


async def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    """The text with other ports, names and paths, as several such tests may run at a time."""
    page = PAGE.read_text()
    (daemon, curl), (check,) = (
        block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    )
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.M | re.S)
    assert daemon == ".venv/bin/drld --config docs/requests.example.toml &"
    (file,), (url,) = configurations(tmp_path, 1)

    async def run(command: str) -> subprocess.CompletedProcess[bytes]:
        return await trio.run_process(
            ["bash", "-c", command], cwd=ROOT, capture_stdout=True, check=False
        )

    with trio.fail_after(600):
        async with running(file):
            assert "http://127.0.0.1:8099" in curl
            got = await run(curl.replace("http://127.0.0.1:8099", url))
            fields = got.stdout.decode().replace("\r", "").splitlines()
            assert [line.rstrip() for line in fields if line.startswith(("HTTP", "ratelimit"))] == (
                shown.splitlines()
            )
            drlctl = f"{sys.executable} -m drld.cli --socket {tmp_path}/0.sock"
            command = check.replace(".venv/bin/drlctl", drlctl)
            assert drlctl in command
            assert (await run(command)).returncode == 0
            assert (await run(command.replace("--cost 3", "--cost 21"))).returncode == 3


async def test_two_daemons_without_privileges_share_a_limit(tmp_path: Path) -> None:
    assert shutil.which("setpriv"), "setpriv is a part of util-linux"
    files, urls = configurations(tmp_path, 2)
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(600))
        for file in files:
            # The rate is so low that a busy host, which asks rarely, changes no count.
            file.write_text(file.read_text().replace('"600/min"', '"60/h"'))
            await stack.enter_async_context(running(file))
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=30))
            for url in urls
        ]
        # The plan's burst of 20 is that of both together, and a few requests (docs/allocators.md).
        admitted = refused = 0
        while refused < 20:
            for client in clients:
                answer = await client.get("/v1/check?namespace=api&plan=free")
                admitted += answer.status_code == 200
                refused += answer.status_code == 429
        assert 10 <= admitted <= 60
        assert answer.headers["retry-after"].isdigit()
        assert answer.headers["ratelimit-policy"] == '"api-free";q=1;w=60'
        transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "0.sock"))
        drld = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://drld", timeout=30)
        )
        # Neither has a datapath for packets, and each counts the other's share.
        while (status := (await drld.get("/v1/status")).json())["peers"]["connected"] != 1:
            pass
        assert status["datapath"]["name"] == "none"
        assert status["probes"]["disagreeing"] == {}
        shown = (await drld.get("/v1/limits/api-free")).json()
        assert (shown["unit"], shown["burst_bytes"]) == ("requests", 20)
        assert round(shown["rate_bps"] * 3600) == 60
        assert shown["dropped_packets"] >= 1
        metrics = (await drld.get("/metrics")).text
        assert 'drld_limit_forwarded_requests_total{limit="api-free"}' in metrics
        # A trace has a record of each tick, in the limit's unit.
        drlctl = [sys.executable, "-m", "drld.cli", "--socket", f"{tmp_path}/0.sock"]
        traced = await trio.run_process(
            [*drlctl, "trace", "api-free", "--count", "2", "--json"], cwd=ROOT, capture_stdout=True
        )
        records = [json.loads(line) for line in traced.stdout.splitlines()]
        assert [(it["number"], it["unit"]) for it in records] == [(0, "requests"), (1, "requests")]
        # A reload to shadow mode keeps the counts, and refuses nothing any more.
        shadow = files[0].read_text().replace("burst = 20\n", 'burst = 20\nmode = "shadow"\n')
        files[0].write_text(shadow)
        assert (await drld.post("/v1/reload")).status_code == 200
        query = "/v1/check?namespace=api&plan=free&cost=15"
        answers = [await clients[0].get(query) for _ in range(4)]
        # The other limit may, by how long the host took for all of this.
        assert {it.json()["limit"] for it in answers if it.status_code == 429} <= {"api"}
        assert answers[0].status_code == 200
        # Packets need what these processes may not have; requests go on.
        packets = {"id": 8, "name": "packets", "rate": "1mbit", "match": {"out": "lo"}}
        unprivileged = await drld.post("/v1/limits", json={"limits": [packets]})
        assert "limits on packets need root" in unprivileged.text
        assert (await drld.get("/v1/status")).json()["datapath"]["name"] == "none"
        # A limit that is removed decides nothing, and another joins.
        assert (await drld.post("/v1/limits/api-free/remove", json={})).status_code == 200
        new = {"id": 9, "name": "new", "unit": "requests", "rate": "9/d", "burst": 10}
        new["match"] = {"namespace": "api", "where": "plan=new"}
        added = await drld.post("/v1/limits", json={"limits": [new]})
        assert added.json()["changes"][0]["table"] == "limit new"
        # A limit for each user, and what is different for single ones, as `drlctl` writes them.
        users = {
            "id": 10,
            "name": "users",
            "rate": "9/d",
            "burst": 3,
            "overrides": ["user=a,burst=1"],
        }
        users["match"] = {"namespace": "users", "per": "user"}
        assert (await drld.post("/v1/limits", json={"limits": [users]})).status_code == 200
        edit = {"set": {"overrides": ["user=big,rate=10/d,burst=20"]}}
        done = await drld.post("/v1/limits/users/set", json=edit)
        assert done.status_code == 200, done.text
        shown = (await drld.get("/v1/limits/users")).json()
        assert shown["match"] == {"namespace": "users", "where": {}, "per": ["user"]}
        assert [(it["key"], it["burst_bytes"]) for it in shown["overrides"]] == [
            (["a"], 1), (["big"], 20)
        ]  # fmt: skip
        for user, burst in (("a", 1), ("big", 20), ("other", 3)):
            asked = {"namespace": "users", "descriptor": {"user": user}, "cost": burst}
            twice = (await drld.post("/v1/check", json=[asked, asked])).json()
            assert [it["admitted"] for it in twice] == [True, False]
        asked = {"namespace": "api", "descriptor": {"plan": "new"}}
        answers = (await drld.post("/v1/check", json=[asked, {**asked, "cost": 10}])).json()
        assert [answer["admitted"] for answer in answers] == [True, False]
        assert answers[1]["limit"] == "new"
        gone = (await clients[0].get("/v1/check?namespace=api&plan=free")).json()
        assert [it["limit"] for it in gone["limits"]] == ["api"]
