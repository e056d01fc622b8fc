"""The client with a real etcd: what it understands, and what it survives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from drld.errors import RegistryError
from drld.registry import etcd as client
from drld.registry.etcd import CompactedError, Etcd
from drld.registry.model.state import Event

from ...etcd_server import EtcdServer
from ...registry_agents import DEADLINE_S, until
from ...registry_factories import KEYS, known, limit, registry_spec


def session(server: EtcdServer, **changes: Any) -> Etcd:
    return Etcd(server.url, registry_spec(**changes))


def _http(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


@asynccontextmanager
async def _served(serve: Callable[[trio.SocketStream], Awaitable[None]]) -> AsyncIterator[Etcd]:
    """A session with a server of these answers."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), serve, 0)
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with Etcd(url, registry_spec()) as etcd:
            yield etcd
        nursery.cancel_scope.cancel()


async def test_written_keys_are_read_page_by_page(
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


async def test_a_lease_lives_while_it_is_kept_alive(server: EtcdServer) -> None:
    async with session(server) as etcd:
        lease = await etcd.grant(60)
        assert await etcd.keep_alive(lease)
        assert not await etcd.keep_alive(12345)
        with pytest.raises(RegistryError, match="lease not found"):
            await etcd.commit({"a": b"1"}, lease=12345)


async def test_a_watch_reports_every_change_after_a_revision(server: EtcdServer) -> None:
    told: list[Event] = []
    async with session(server) as etcd, trio.open_nursery() as nursery:
        revision = await etcd.commit({KEYS.limit(1): b"1"})
        assert revision is not None
        nursery.start_soon(etcd.watch, KEYS.followed, revision, told.extend)
        await etcd.commit({KEYS.limit(1): None, KEYS.member("a"): b"", KEYS.alive("a"): b"no"})
        await until(lambda: len(told) == 3)
        nursery.cancel_scope.cancel()
    assert set(told) == {
        Event(KEYS.limit(1), b"1", revision),
        Event(KEYS.limit(1), None, revision + 1),
        Event(KEYS.member("a"), b"", revision + 1),
    }


async def test_a_long_history_is_known_up_to_its_last_event(server: EtcdServer) -> None:
    """etcd tells 1,000 revisions at once, with its last one in the header."""
    registry, seen = known(), []

    def told(events: list[Event]) -> None:
        registry.apply(events)
        seen.append((registry.seen, int(registry.limits[1].value.policy.rate)))

    async with session(server) as etcd, trio.open_nursery() as nursery:
        for number in range(1, 1101):
            await etcd.commit({KEYS.limit(1): limit(1, rate=f"{8 * number}kbit")})
        nursery.start_soon(etcd.watch, KEYS.followed, 2, told)
        await until(lambda: registry.seen == 1101)
        nursery.cancel_scope.cancel()
    assert len(seen) > 1
    assert all(rate == 1000 * (revision - 1) for revision, rate in seen)


async def test_a_watch_of_a_compacted_history_is_an_error(server: EtcdServer) -> None:
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


async def test_a_change_whose_answer_is_lost_is_not_made_again() -> None:
    """A server that makes a change and dies, and one in its place that has the change."""
    asked: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        connection = len(asked)
        while head := await stream.receive_some():
            asked.append(head.split()[1])
            if b"txn" in head and connection == 0:
                await stream.aclose()
                return
            await stream.send_all(_http(b'{"header": {"revision": "7"}}'))

    async with _served(serve) as etcd:
        assert await etcd.get("a") is None
        with pytest.raises(RegistryError):
            await etcd.commit({"a": b"1"}, {"a": 0})
        assert await etcd.get("a") is None
    assert asked == [b"/v3/kv/range", b"/v3/kv/txn", b"/v3/kv/range"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ('"more": true', "no next page"),
        ('"kvs": [{"key": "YQ==", "mod_revision": "7"}], "more": true', "no next page"),
        ('"kvs": [5]', "a key is no object"),
        ('"kvs": 5', "kvs: 5"),
        ('"kvs": [{"key": "eg==", "mod_revision": "-7"}]', "mod_revision: -7"),
    ],
)
async def test_an_answer_that_is_not_etcds_ends_a_read(answer: str, error: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        while await stream.receive_some():
            await stream.send_all(_http(b'{"header": {"revision": "7"}, %s}' % answer.encode()))

    async with _served(serve) as etcd:
        with trio.fail_after(DEADLINE_S), pytest.raises(RegistryError, match=error):
            await etcd.read(("b", "c"))


async def test_more_keys_than_a_fleet_needs_are_an_error(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE", 2)
    monkeypatch.setattr(client, "MAX_KEYS", 3)
    async with session(server) as etcd:
        for number in range(1, 4):
            await etcd.commit({KEYS.limit(number): b"x"})
        assert len((await etcd.read(KEYS.followed))[0]) == 3
        monkeypatch.setattr(client, "MAX_READ_BYTES", 2)
        with pytest.raises(RegistryError, match=r"more in .* than a fleet needs"):
            await etcd.read(KEYS.followed)
        monkeypatch.undo()
        monkeypatch.setattr(client, "MAX_KEYS", 3)
        await etcd.commit({KEYS.limit(4): b"x"})
        with pytest.raises(RegistryError, match=r"more in .* than a fleet needs"):
            await etcd.read(KEYS.followed)


async def test_a_server_that_stands_still_ends_calls(
    server: EtcdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CALL_TIMEOUT_S", 0.2)
    async with session(server) as etcd:
        server.freeze()
        with trio.fail_after(DEADLINE_S), pytest.raises(RegistryError):
            await etcd.get("a")
        server.thaw()


async def test_a_name_and_password_open_a_session(server: EtcdServer, tmp_path: Path) -> None:
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
        with pytest.raises(
            RegistryError,
            match=r"authentication failed.* \(registry.user, registry.password_file\)",
        ):
            await etcd.get("a")
    async with session(server) as etcd:
        with pytest.raises(RegistryError, match=r"user name is empty \(registry.user\)"):
            await etcd.get("a")
    with pytest.raises(RegistryError, match="No such file"):
        session(server, user="root", password_file="/nowhere")
