"""The clients against a limiter over real sockets: threads, asyncio and trio."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from drld.client import Client, Question, on_asyncio, on_trio
from drld.client.base import AsyncClient
from drld.client.protocol.exchange import CHUNK
from drld.spec import OnFailure

from ..requests.made import bucket, limit, limited
from .limiter import limiter

FREE = {"plan": "free"}
Made = Callable[[str], AsyncClient]


def asyncio_run(function: Callable[[Made], Awaitable[None]]) -> None:
    async def main() -> None:
        await function(on_asyncio.Client)

    asyncio.run(main())


def trio_run(function: Callable[[Made], Awaitable[None]]) -> None:
    trio.run(function, on_trio.Client)


LOOPS = pytest.mark.parametrize("run", [asyncio_run, trio_run])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "requests.sock"


def test_the_library_is_imported_without_the_limiter() -> None:
    heavy = "trio", "asyncio", "pydantic", "starlette", "h11", "pyroute2", "ssl"
    code = f"import drld.client, sys; assert not {{*{heavy}}} & sys.modules.keys(), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_ask_over_both_kinds_of_socket(path: Path) -> None:
    with limiter(path) as (unix, tcp), Client(unix) as client, Client(tcp) as other:
        answer = client.check("api", FREE, cost=2, caller="bob")
        assert (answer.admitted, answer.limit, answer.remaining) == (True, "limit-2", 0)
        assert other.check("api").remaining == 2
        refused, mistaken, free = other.ask(
            [Question("api", FREE), Question("api", {"": ""}), Question("other")]
        )
        assert (refused.admitted, refused.degraded, refused.limit) == (False, False, "limit-2")
        assert mistaken.error == "a name in a descriptor must not be empty"
        assert free.admitted
        # The limits came with the first answer.
        assert client.limits is not None
        assert [it.name for it in client.limits.limits] == ["limit-1", "limit-2"]
        assert other.counts == Counter({"answered": 4})
        with pytest.raises(ValueError, match="on_failure: must be"):
            Client(unix, on_failure="x")
        for wrong in ("requests.sock", "localhost", ":1", "::1:80", "a:0", "a:65536"):
            with pytest.raises(ValueError, match="must be the path of a socket, or HOST:PORT"):
                Client(wrong)


def test_many_threads_share_a_client_and_large_batches_are_split(path: Path) -> None:
    many = 3 * CHUNK + 1
    datapath = limited((limit(), bucket(100)))
    with limiter(path, datapath) as (unix, _), Client(unix, timeout_s=60) as client:
        admitted = []

        def work() -> None:
            for _ in range(20):
                admitted.append(client.check("api").admitted)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert admitted == [True] * 80
        answers = client.ask([Question("api")] * many)
        assert [it.admitted for it in answers] == [True] * 20 + [False] * (many - 20)
        assert client.counts == Counter({"answered": 80 + many})
        assert client.ask([]) == []


@pytest.mark.parametrize("made", [Client, on_asyncio.Client, on_trio.Client])
def test_many_questions_have_the_time_of_each_part(made: Any, path: Path) -> None:
    client = made(str(path), timeout_s=0.5)
    waits = [client._patience_s([Question("api")] * number) for number in (0, 1, CHUNK, CHUNK + 1)]
    assert waits == [0.5, 0.5, 0.5, 1.0]


@LOOPS
def test_tasks_share_a_connection(
    run: Callable[[Callable[[Made], Awaitable[None]]], None], path: Path
) -> None:
    many = CHUNK + 1

    async def ask(made: Made) -> None:
        clients: list[Any] = [made(unix), made(tcp)]
        async with clients[0] as client, clients[1] as other:
            client._timeout_s = other._timeout_s = 60
            assert (await client.check("api", FREE)).remaining == 1
            answers = []

            async def one() -> None:
                answers.append(await other.check("api"))

            if made is on_trio.Client:
                async with trio.open_nursery() as nursery:
                    for _ in range(8):
                        nursery.start_soon(one)
            else:
                await asyncio.gather(*[one() for _ in range(8)])
            assert sorted(it.admitted for it in answers) == [False] * 4 + [True] * 4
            assert len(await client.ask([Question("api")] * many)) == many
            assert client.counts == Counter({"answered": many + 1})
            lease = client.lease("other")
            assert [await lease.take() for _ in range(9)] == [True] * 9
            assert (await client.check("\ud800")).error == "a question must be text in UTF-8"

    with limiter(path) as (unix, tcp):
        run(ask)


@LOOPS
def test_a_call_of_many_questions_lets_others_between(
    run: Callable[[Callable[[Made], Awaitable[None]]], None], path: Path
) -> None:
    ended = []

    async def many(client: Any) -> None:
        assert not any(it.degraded for it in await client.ask([Question("api")] * 20 * CHUNK))
        ended.append("many")

    async def one(client: Any, pause: Callable[[], Awaitable[None]]) -> None:
        of_asyncio = isinstance(client, on_asyncio.Client)
        while not (client._lines.here() if of_asyncio else client)._connection._waiting:
            await pause()
        assert not (await client.check("api")).degraded
        ended.append("one")

    async def ask(made: Made) -> None:
        client: Any = made(unix)
        client._timeout_s = 60
        async with client:
            await client.check("api")
            if made is on_trio.Client:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(many, client)
                    nursery.start_soon(one, client, trio.lowlevel.checkpoint)
            else:
                await asyncio.gather(many(client), one(client, partial(asyncio.sleep, 0)))

    with limiter(path) as (unix, _):
        run(ask)
    assert ended == ["one", "many"]


@LOOPS
def test_a_limiter_that_goes_and_comes_back(
    run: Callable[[Callable[[Made], Awaitable[None]]], None], path: Path
) -> None:
    """The limit is `closed`; the next limiter answers on the old connection's address."""

    async def ask(made: Made) -> None:
        client: Any = made(str(path))
        async with client:
            client._timeout_s = 60
            assert (await client.check("api")).degraded
            client._availability._backoff._due_ns = None
            stopped = limiter(path, limited((limit(on_failure=OnFailure.CLOSED), bucket(5))))
            with stopped:
                assert (await client.check("api")).limit == "limit-1"
            # The connection has ended; what the limits say is known.
            answer = await client.check("api")
            assert (answer.admitted, answer.degraded) == (False, True)
            assert client._availability._backoff._due_ns is not None
            # However slow this host is, the time to try again is not there yet.
            client._availability._backoff._due_ns = 2**63
            with limiter(path):
                assert (await client.check("api")).degraded
                client._availability._backoff._due_ns = None
                assert (await client.check("api")).admitted
            # It restarts while no thread asks: the next question finds the new one.
            with limiter(path):
                answer = await client.check("api")
                assert (answer.admitted, answer.degraded) == (True, False)
            assert client.counts == Counter({"answered": 3, "degraded": 3, "failures": 2})

    run(ask)


def test_threads_find_a_limiter_that_has_restarted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "drld.client")
    with Client(str(path), timeout_s=60, on_failure="closed") as client:
        assert client.check("api").retry_after_s == 1.0
        client._availability._backoff._due_ns = None
        for _ in range(2):
            with limiter(path):
                assert client.check("api").limit == "limit-1"
    assert [record.getMessage() for record in caplog.records] == [
        "the limiter does not answer ([Errno 2] No such file or directory): on_failure of each "
        "limit decides",
        "the limiter answers again; decided without it so far: 1",
    ]


def test_a_silent_limiter_is_left_in_time(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        client = Client(str(path), timeout_s=0.01)
        assert client.check("api").degraded
        assert client.counts == Counter({"degraded": 1, "failures": 1})

        async def wait(made: Made) -> None:
            other: Any = made(str(path))
            other._timeout_s = 0.01
            async with other:
                assert (await other.check("api")).degraded

        asyncio_run(wait)
        trio_run(wait)


def test_a_server_that_is_no_limiter_is_left(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as web:
        web.bind(str(path))
        web.listen()

        def answer() -> None:
            for _ in range(3):
                with web.accept()[0] as client:
                    client.recv(1 << 16)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert Client(str(path), timeout_s=60).check("api").degraded

        async def ask(made: Made) -> None:
            other: Any = made(str(path))
            other._timeout_s = 60
            async with other:
                assert (await other.check("api")).degraded

        asyncio_run(ask)
        trio_run(ask)
        thread.join()


def test_a_forked_worker_has_connections_and_tokens_of_its_own(path: Path) -> None:
    with limiter(path, limited((limit(), bucket(100)))) as (unix, _):
        client = Client(unix, timeout_s=60)
        lease = client.lease("api")
        assert all(lease.take() for _ in range(4))
        before = lease._lease
        # Not os.fork: other tests' threads hold locks. The process is what a fork changes.
        (kept,) = client._idle
        client._owner = lease._owner = -1
        assert client.check("api").admitted
        assert client._idle != [kept]
        assert client._owner == os.getpid()
        assert lease.take()
        assert lease._owner == os.getpid()
        assert lease._lease is not before
        assert client.limits is not None
        client.close()
        kept.close()


@LOOPS
def test_a_forked_worker_counts_as_a_process_of_its_own(
    run: Callable[[Callable[[Made], Awaitable[None]]], None], path: Path
) -> None:
    async def ask(made: Made) -> None:
        other: Any = made(unix)
        async with other:
            before = other._process
            # The client was made before the fork, and has no connection yet.
            other._owner = -1
            assert (await other.check("api")).admitted
            assert other._process != before
            assert (await other.check("api")).admitted

    with limiter(path) as (unix, _):
        run(ask)


# asyncio itself closes and reports a socket whose loop has ended without closing it.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_client_asks_from_one_event_loop_after_another(path: Path) -> None:
    with limiter(path, limited((limit(), bucket(100)))) as addresses:
        for address in addresses:
            of_asyncio = on_asyncio.Client(address, timeout_s=60)
            of_trio = on_trio.Client(address, timeout_s=60)
            for _ in range(3):
                assert not asyncio.run(of_asyncio.check("api")).degraded
                assert not trio.run(of_trio.check, "api").degraded
            of_asyncio.close()
            trio.run(of_trio.aclose)
            assert of_asyncio.counts["failures"] == of_trio.counts["failures"] == 0
            of_asyncio._prepare()
        # The warnings come here, and not in another test.
        gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_lease_is_used_in_one_event_loop_after_another(path: Path) -> None:
    with limiter(path, limited((limit(), bucket(100)))) as (unix, _):
        client = on_asyncio.Client(unix, timeout_s=60)
        lease = client.lease("api")

        async def ask() -> list[bool]:
            return await asyncio.gather(*[lease.take() for _ in range(20)])

        for _ in range(3):
            assert asyncio.run(ask()) == [True] * 20
        client.close()
        client._prepare()
        gc.collect()


def test_event_loops_of_several_threads_share_a_client_and_a_lease(path: Path) -> None:
    with limiter(path, limited((limit(), bucket(1000)))) as (unix, _):
        client = on_asyncio.Client(unix, timeout_s=60)
        lease = client.lease("api")
        turns = threading.Barrier(2, timeout=30)

        async def ask() -> None:
            connections = set()
            for _ in range(20):
                turns.wait()
                answers = await asyncio.gather(*[client.check("api") for _ in range(3)])
                assert not any(it.degraded for it in answers)
                assert all(await asyncio.gather(*[lease.take() for _ in range(3)]))
                connections.add(client._lines.here()._connection)
            assert len(connections) == 1
            turns.wait()
            client.close()
            await asyncio.sleep(0)

        with ThreadPoolExecutor(2) as threads:
            for done in [threads.submit(asyncio.run, ask()) for _ in range(2)]:
                done.result(60)
        assert client.counts["failures"] == 0


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_limiter_has_the_places_of_closed_event_loops_back(path: Path) -> None:
    with limiter(path, limited((limit(), bucket(100)))) as (unix, _):
        client = on_asyncio.Client(unix, timeout_s=60)
        sockets = []

        async def ask() -> None:
            assert not (await client.check("api")).degraded
            line: Any = client._lines.here()
            sockets.append(line._connection._transport.get_extra_info("socket").dup())

        for _ in range(3):
            asyncio.run(ask())
        client.close()
        for found in sockets:
            with found:
                found.settimeout(30)
                assert found.recv(1 << 16) == b""
        client._prepare()
        gc.collect()


@pytest.mark.parametrize("error", [TypeError, AttributeError, OSError])
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_closed_event_loop_of_another_library_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """As with uvloop, whose transports have sockets that cannot be shut down."""

    def refuse(*_: object) -> None:
        raise error

    with limiter(path, limited((limit(), bucket(100)))) as (unix, _):
        client = on_asyncio.Client(unix, timeout_s=60)
        asyncio.run(client.check("api"))
        with monkeypatch.context() as patch:
            patch.setattr("asyncio.trsock.TransportSocket.shutdown", refuse)
            assert not asyncio.run(client.check("api")).degraded
        client.close()
        client._prepare()
        gc.collect()


@pytest.mark.parametrize("kind", [Client, on_asyncio.Client, on_trio.Client])
def test_counters_are_read_while_leases_are_made(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """As if another thread read them at each moment."""
    client = kind(str(path))
    kept = [client.lease("api") for _ in range(3)]
    made = client.new_lease
    with monkeypatch.context() as patch:
        patch.setattr(client, "new_lease", lambda: (client.counts, made(), client.counts)[1])
        kept.append(client.lease("api"))
    lapse = type(kept[0]).lapse

    def lapse_beside_a_new_one(lease: Any) -> None:
        if len(kept) < 9:
            kept.append(client.lease("api"))
        lapse(lease)

    monkeypatch.setattr(type(kept[0]), "lapse", lapse_beside_a_new_one)
    assert client.counts["lost"] == 0


def test_leases_charge_the_limiter_and_never_more(path: Path) -> None:
    """All that is admitted was charged, and what was charged was admitted or counted as lost."""
    datapath = limited((limit(), bucket(100)))
    with limiter(path, datapath) as (unix, _), Client(unix, timeout_s=60) as client:
        leases = [client.lease("api") for _ in range(3)]
        taken = [lease.take() for _ in range(200) for lease in leases]
        held = sum(lease._lease._tokens + lease.lost for lease in leases)
        left = client.check("api", cost=0).remaining
        assert left is not None
        assert taken.count(True) + held + left == 100
        # Unused tokens are lost after their time, and counted without another question.
        while sum(lease._lease._tokens for lease in leases):
            assert client.counts["leased"] == 100 - left
        assert client.counts["lost"] == sum(lease.lost for lease in leases)
        assert taken.count(True) == client.counts["leased"] - client.counts["lost"]
