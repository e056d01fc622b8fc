"""A cluster of three servers that loses one, its leader, its quorum, and its history."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trio

from drld.registry import agent
from drld.registry import etcd as client
from drld.registry.etcd import Etcd, Range

from ...etcd_server import EtcdCluster, EtcdServer
from ...registry_agents import Host, until
from ...registry_factories import KEYS, limit

SHORT_TTL_NS = 2 * 10**9
"""A silent server is noticed after a third of it."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EtcdCluster]:
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 1.5)
    monkeypatch.setattr(agent, "LONGEST_RETRY_S", 0.5)
    made = EtcdCluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.kill()


def server_of(cluster: EtcdCluster, host: Host) -> EtcdServer:
    url = host.agent.report()["endpoint"]
    assert url is not None
    return cluster.at(url)


async def has(hosts: list[Host], *limits: int) -> None:
    """Wait until these limits are in force at all limiters, and all are members."""
    for host in hosts:
        await host.reports(state="connected", joined=True, members=len(hosts), lost=0)
        await until(lambda: [found.id for found in host.spec.limits] == [*limits])  # noqa: B023 -- called at once


async def test_servers_die_one_by_one_and_come_back(
    cluster: EtcdCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hosts = [
        Host(cluster.servers[0], tmp_path, n, endpoints=cluster.urls, ttl_ns=SHORT_TTL_NS)
        for n in (1, 2)
    ]
    async with hosts[0].running(), hosts[1].running():
        await has(hosts)
        # The server in use.
        dead = server_of(cluster, hosts[0])
        dead.kill()
        alive = next(server for server in cluster.servers if server.runs)
        await put(alive, 1)
        await has(hosts, 1)
        await until(lambda: hosts[0].agent.report()["endpoint"] not in (None, dead.url))
        others = [server for server in cluster.servers if server is not dead]
        assert any(f"fleet f at {server.url}" in caplog.text for server in others)
        # The leader.
        cluster.start()
        leader = cluster.leader()
        leader.kill()
        alive = next(server for server in cluster.servers if server.runs)
        await put(alive, 2)
        await has(hosts, 1, 2)
        # All but one: it answers, and can do nothing.
        next(server for server in cluster.servers if server.runs and server is not alive).kill()
        for host in hosts:
            await host.reports(state="unreachable", members=2, limits=2, joined=True)
            assert host.agent.report()["error"]
        cluster.start()
        await put(alive, 3)
        await has(hosts, 1, 2, 3)
        await until(lambda: says(alive, [KEYS.alive(host.file.name) for host in hosts]))
    # Once for each outage; the last one concerns every limiter.
    assert len(hosts) <= caplog.text.count("no etcd") <= 3 * len(hosts)
    assert "lost" not in caplog.text


def says(server: EtcdServer, keys: list[str]) -> bool:
    """Whether it has all of these; while there is no leader it says nothing."""
    with contextlib.suppress(httpx.HTTPError):
        return set(keys) <= server.get("/drld/f/").keys()
    return False


async def put(server: EtcdServer, number: int) -> None:
    """Give the fleet a limit, as soon as there is a leader again."""

    def done() -> bool:
        with contextlib.suppress(Exception):
            return bool(server.put(KEYS.limit(number), limit(number)))
        return False

    await until(done)


async def test_a_history_that_is_gone_before_it_could_be_watched(
    server: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Etcd.watch
    asked: list[int] = []

    async def late(self: Etcd, span: Range, revision: int, *rest: object) -> None:
        """Watch; but what has changed since the read is forgotten the first time."""
        asked.append(revision)
        if len(asked) == 1:
            for number in (1, 2):
                server.put(KEYS.limit(number), limit(number))
            server.delete(KEYS.limit(1))
            server.compact()
        await watch(self, span, revision, *rest)  # type: ignore[arg-type]  # as they come

    monkeypatch.setattr(Etcd, "watch", late)
    host = Host(server, tmp_path, 1)
    async with host.running():
        await host.reports(joined=True, state="connected")
        await until(lambda: [found.id for found in host.spec.limits] == [2])
        with trio.fail_after(60):
            assert len(asked) == 2
        server.put(KEYS.limit(3), limit(3))
        await until(lambda: [found.id for found in host.spec.limits] == [2, 3])
    assert len(asked) == 2
