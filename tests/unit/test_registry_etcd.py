"""The client and the agent with a real etcd: what it understands, and what it survives."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from drld.errors import ConfigError, DatapathError, RegistryError
from drld.registry import etcd as client
from drld.registry.agent import Agent
from drld.registry.etcd import CompactedError, Etcd
from drld.registry.state import Event
from drld.spec import LimiterSpec

from ..etcd_server import EtcdServer
from ..registry_factories import KEYS, address, file_spec, limit, registry_spec

DEADLINE_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdServer]:
    made = EtcdServer(tmp_path / "etcd")
    try:
        made.start()
        yield made
    finally:
        made.kill()


def session(server: EtcdServer, **changes: Any) -> Etcd:
    return Etcd(server.url, registry_spec(**changes))


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not true():
            await trio.sleep(0.01)


async def test_what_is_put_is_read_page_by_page(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE", 3)
    async with session(server) as etcd:
        for number in range(1, 9):
            await etcd.commit({KEYS.limit(number): b"x" * number})
        server.put(KEYS.member("\N{BLACK HEART SUIT}"), "?")
        items, revision = await etcd.read(KEYS.followed)
        assert [item.key for item in items[:8]] == [KEYS.limit(n) for n in range(1, 9)]
        assert [item.value for item in items[:8]] == [b"x" * n for n in range(1, 9)]
        assert len(items) == 9
        assert revision == items[-1].revision
        # Answers that would be too large are asked for in smaller pages.
        monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 500)
        assert await etcd.read(KEYS.followed) == (items, revision)
        monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 50)
        with pytest.raises(RegistryError, match="more than 50 bytes"):
            await etcd.read(KEYS.followed)


async def test_commits_hold_only_where_the_revisions_do(server: EtcdServer) -> None:
    async with session(server) as etcd:
        first = await etcd.commit({"a": b"1"}, {"a": 0})
        assert first is not None
        assert await etcd.commit({"a": b"2"}, {"a": 0}) is None
        assert await etcd.commit({"a": None, "b": b"3"}, {"a": first}) == first + 1
        assert await etcd.get("a") is None
        assert await etcd.get("b") == Event("b", b"3", first + 1)


async def test_leases(server: EtcdServer) -> None:
    async with session(server) as etcd:
        lease = await etcd.grant(60)
        assert await etcd.keep_alive(lease)
        assert not await etcd.keep_alive(12345)
        with pytest.raises(RegistryError, match="lease not found"):
            await etcd.commit({"a": b"1"}, lease=12345)


async def test_a_watch_tells_everything_from_a_revision_on(server: EtcdServer) -> None:
    told: list[Event] = []
    async with session(server) as etcd, trio.open_nursery() as nursery:
        revision = await etcd.commit({KEYS.limit(1): b"1"})
        assert revision is not None
        nursery.start_soon(
            etcd.watch, KEYS.followed, revision, lambda events, _: told.extend(events)
        )
        await etcd.commit({KEYS.limit(1): None, KEYS.member("a"): b"", KEYS.alive("a"): b"no"})
        await until(lambda: len(told) == 3)
        nursery.cancel_scope.cancel()
    assert set(told) == {
        Event(KEYS.limit(1), b"1", revision),
        Event(KEYS.limit(1), None, revision + 1),
        Event(KEYS.member("a"), b"", revision + 1),
    }


async def test_a_watch_of_a_compacted_history_says_so(server: EtcdServer) -> None:
    async with session(server) as etcd:
        for _ in range(5):
            await etcd.commit({KEYS.limit(1): b"1"})
        server.compact()
        with trio.fail_after(DEADLINE_S), pytest.raises(CompactedError):
            await etcd.watch(KEYS.followed, 2, lambda *_: None)


async def test_a_server_that_dies_ends_calls_and_watches(server: EtcdServer) -> None:
    async with session(server) as etcd:
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    with pytest.raises(RegistryError):
                        await etcd.watch(KEYS.followed, 1, lambda *_: None)

                nursery.start_soon(watch)
                await etcd.commit({"a": b"1"})
                server.kill()
            with pytest.raises(RegistryError):
                await etcd.commit({"a": b"1"})


async def test_a_server_that_stands_still_ends_calls(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 0.2)
    async with session(server) as etcd:
        server.freeze()
        with trio.fail_after(DEADLINE_S), pytest.raises(RegistryError):
            await etcd.get("a")
        server.thaw()


async def test_name_and_password(server: EtcdServer, tmp_path: Path) -> None:
    server.call("auth/user/add", {"name": "root", "password": "secret word"})
    server.call("auth/user/grant", {"user": "root", "role": "root"})
    server.call("auth/enable", {})
    file = tmp_path / "password"
    file.write_text("secret word\n")
    async with session(server, user="root", password_file=str(file)) as etcd:
        assert await etcd.commit({"a": b"1"}) is not None
        # A token that has run out is replaced.
        etcd._token = "old.1"
        assert await etcd.get("a") is not None
    file.write_text("wrong\n")
    async with session(server, user="root", password_file=str(file)) as etcd:
        with pytest.raises(RegistryError, match="authentication failed"):
            await etcd.get("a")
    async with session(server) as etcd:
        with pytest.raises(RegistryError, match="user name is empty"):
            await etcd.get("a")
    with pytest.raises(RegistryError, match="No such file"):
        session(server, user="root", password_file="/nowhere")


async def test_tls(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path / "etcd", "--auto-tls", scheme="https")
    try:
        server.start()
        (ca,) = (tmp_path / "etcd").rglob("cert.pem")
        async with session(server, ca=str(ca)) as etcd:
            assert await etcd.commit({"a": b"1"}) is not None
        async with session(server) as etcd:
            with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
                await etcd.get("a")
    finally:
        server.kill()
    with pytest.raises(RegistryError, match="certificates"):
        session(server, ca="/nowhere")


# The agent


class Host:
    """What a daemon is to its agent: it notes what comes into force, and refuses some of it."""

    def __init__(self, server: EtcdServer, directory: Path, number: int, **changes: Any) -> None:
        self.refuses: set[str] = set()
        self.specs: list[LimiterSpec] = []
        name = "abcdef"[number - 1]
        registry = registry_spec(
            **{
                "endpoints": (server.url,),
                "ttl_ns": 20 * 10**9,
                "cache": str(directory / f"{name}.cache"),
                **changes,
            }
        )
        self.file = file_spec(name, number, registry=registry)
        self.agent = Agent(self.file, "drld.toml", self.reconfigure)

    def reconfigure(self, spec: LimiterSpec) -> None:
        bad = [limit.name for limit in spec.limits if limit.name in self.refuses]
        if bad:
            raise DatapathError(f"no {bad[0]} here")
        self.specs.append(spec)

    @property
    def spec(self) -> LimiterSpec:
        return self.specs[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.agent.run)
            with trio.fail_after(DEADLINE_S):
                await self.agent.known.wait()
            self.specs.append(self.agent.spec())
            self.agent.started(self.spec)
            yield
            nursery.cancel_scope.cancel()

    async def reports(self, **wanted: object) -> None:
        await until(lambda: wanted.items() <= dict(self.agent.report()).items())


async def test_a_full_disk_is_said_and_harms_nothing(server: EtcdServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host = Host(server, tmp_path, 1, cache=str(tmp_path / "file" / "cache"))
    async with host.running():
        await host.reports(joined=True)
        server.put(KEYS.limit(1), limit(1))
        await until(lambda: len(host.spec.limits) == 1)
        await until(lambda: host.agent.report()["cache_error"] is not None)
    assert list(tmp_path.glob("*cache*")) == []


async def test_one_server_of_several_is_enough_and_the_next_takes_over(
    server: EtcdServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    endpoints = ("http://127.0.0.1:1", server.url, "http://127.0.0.1:2")
    host = Host(server, tmp_path, 1, endpoints=endpoints)
    async with host.running():
        await host.reports(endpoint=server.url, joined=True)
        server.kill()
        await host.reports(endpoint=None, state="unreachable")
        server.start()
        await host.reports(endpoint=server.url, state="connected")
        await until(lambda: KEYS.alive("a") in server.get("/drld/f/"))
    assert caplog.text.count("no etcd") <= 1


async def test_what_the_host_refuses_is_refused_alone_and_told(
    server: EtcdServer, tmp_path: Path
) -> None:
    first, second = Host(server, tmp_path, 1), Host(server, tmp_path, 2)
    first.refuses = {"limit1"}
    async with first.running():
        for number in (1, 2):
            server.put(KEYS.limit(number), limit(number))
        await until(lambda: [found.id for found in first.spec.limits] == [2])
        async with second.running():
            await second.reports(joined=True)
            await until(lambda: first.spec.members == {"a", "b"})
        assert json.loads(server.get(KEYS.alive("a"))[KEYS.alive("a")])["refused"] == {
            KEYS.limit(1): "etcd /drld/f/limits/1: no limit1 here"
        }
        # A change that the host can do comes into force.
        server.put(KEYS.limit(1), limit(1, name="other"))
        await until(lambda: [found.id for found in first.spec.limits] == [1, 2])
        await first.reports(problem_count=0)


async def test_who_leaves_is_gone_and_does_not_believe_otherwise(
    server: EtcdServer, tmp_path: Path
) -> None:
    first, second = Host(server, tmp_path, 1), Host(server, tmp_path, 2)
    async with first.running():
        async with second.running():
            await second.reports(joined=True)
            await until(lambda: first.spec.members == {"a", "b"})
        await second.agent.leave()
        await until(lambda: first.spec.members == {"a"})
        server.kill()
        again = Host(server, tmp_path, 2)
        async with again.running():
            assert not again.spec.joined
            assert again.spec.members == {"a", "b"}


async def test_a_member_that_is_away_too_long_is_forgotten_if_asked_for(
    server: EtcdServer, tmp_path: Path
) -> None:
    server.put(KEYS.member("z"), '{"address": "127.0.0.9:7946"}')
    patient, quick = Host(server, tmp_path, 1), Host(server, tmp_path, 2, forget_after_ns=10**8)
    async with patient.running():
        await patient.reports(members=2, waiting_for=["z"])
        async with quick.running():
            await quick.reports(members=2, joined=True)
        assert KEYS.member("z") not in server.get("/drld/f/")
        await patient.reports(joined=True)


async def test_a_file_is_reloaded_as_a_whole(server: EtcdServer, tmp_path: Path) -> None:
    host = Host(server, tmp_path, 1)
    async with host.running():
        server.put(KEYS.limit(1), limit(1))
        await until(lambda: len(host.spec.limits) == 1)
        own = file_spec("a", 1, registry=host.file.registry, limits=host.spec.limits)
        host.agent.reload(own, host.reconfigure)
        await host.reports(problem_count=1)
        assert "unique, but drld.toml (limit[0].id)" in str(host.agent.report()["problems"])
        host.refuses = {"limit1"}
        with pytest.raises(DatapathError):
            host.agent.reload(own, host.reconfigure)
        other = file_spec("a", 1, registry=registry_spec(fleet="g"))
        with pytest.raises(ConfigError, match="registry: cannot change"):
            host.agent.reload(other, host.reconfigure)
        assert host.spec.listen == address(1)
