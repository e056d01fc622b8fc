"""Many clients at a time: their number is bounded, and so is the work done for them at once."""

from __future__ import annotations

import errno
import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from drld.control import app, connection, server
from drld.control.app import make_app
from drld.control.credentials import Credentials
from drld.control.ranking import Rank
from drld.control.schema.limits import LimitReport, SortKey
from drld.control.schema.peers import PeerReport
from drld.control.schema.status import StatusReport
from drld.control.turns import Turns
from tests.control_fake import PEERS, FakeDaemon, client, many_limits, served

if sys.version_info < (3, 11):
    from exceptiongroup import ExceptionGroup

REQUEST = b"GET /v1/status HTTP/1.1\r\nHost: drld\r\n\r\n"
CLIENTS = 40


async def answers(path: Path) -> bool:
    """Whether a new connection gets an answer."""
    async with client(path) as http_client:
        try:
            return (await http_client.get("/v1/status")).status_code == 200
        except httpx.TransportError:
            return False


async def test_connections_are_bounded(
    daemon: FakeDaemon,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    # No place becomes free on a host that is late.
    monkeypatch.setattr(connection, "REQUEST_S", 60.0)
    async with served(daemon, path), client(path) as one, client(path) as two:
        await one.get("/v1/status")
        await two.get("/v1/status")
        for _ in range(20):
            assert not await answers(path)
        assert (await one.get("/v1/status")).status_code == 200
    refusals = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert len(refusals) == 20
    for refusal in refusals:
        assert refusal.getMessage().startswith("refused a control connection of uid ")
        assert refusal.getMessage().endswith(": 2 are open")
        # By which the log keeps only the first few (tests/unit/daemon/test_log_output.py).
        assert vars(refusal)["event"] == "control.refused"
        assert vars(refusal)["subject"] == ""


async def test_the_last_places_are_for_root(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(server, "KEPT_PLACES", 1)
    uid = 12345

    def credentials(_: object) -> Credentials:
        return Credentials(pid=1, uid=uid, gid=1)

    monkeypatch.setattr(Credentials, "of", credentials)
    async with served(daemon, path), client(path) as one, client(path) as two:
        await one.get("/v1/status")
        await two.get("/v1/status")
        assert not await answers(path)
        uid = 0
        assert await answers(path)


async def test_a_client_that_has_left_takes_no_place(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 2)
    async with served(daemon, path):
        for _ in range(5):
            assert await answers(path)
            async with await trio.open_unix_socket(str(path)):
                pass
            await wait_all_tasks_blocked()


class Exhausted:
    """A listening socket in a process that may not open another descriptor, ten times."""

    def __init__(self) -> None:
        self.refusals = 0

    async def accept(self) -> tuple[trio.socket.SocketType, str]:
        await trio.lowlevel.checkpoint()
        if self.refusals == 10:
            raise OSError(errno.EINVAL, "closed")
        self.refusals += 1
        raise OSError(errno.EMFILE, "Too many open files")


async def test_without_descriptors_the_server_waits_and_logs_it(
    daemon: FakeDaemon, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    listener, turns = Exhausted(), Turns()
    connections = server.Connections(make_app(daemon, turns), turns)
    began = trio.current_time()
    with pytest.raises(ExceptionGroup) as caught:
        await connections.accept(listener, trio.TASK_STATUS_IGNORED)  # type: ignore[arg-type]  # all that is asked of a socket
    assert caught.group_contains(OSError, match="closed")
    assert trio.current_time() - began == pytest.approx(10 * 0.2)
    assert [(entry.getMessage(), vars(entry)["event"]) for entry in caplog.records] == [
        ("cannot accept a control connection: Too many open files", "control.exhausted")
    ] * 10


class Passes:
    """The number of events between two steps of a task that can always run."""

    def __init__(self) -> None:
        self.number = 0
        self.events: Counter[int] = Counter()

    async def count(self) -> None:
        while True:
            self.number += 1
            await trio.lowlevel.checkpoint()

    def happened(self) -> None:
        self.events[self.number] += 1

    def worst(self) -> int:
        return max(self.events.values())


class Watched(FakeDaemon):
    """Notes in which pass of the event loop it is asked for something."""

    def __init__(self, passes: Passes) -> None:
        super().__init__()
        self._passes = passes

    def status(self) -> StatusReport:
        self._passes.happened()
        return super().status()

    def limits(self, ids: Sequence[int] | None = None) -> Iterator[LimitReport]:
        for report in many_limits(300 if ids is None else len(ids)):
            self._passes.happened()
            yield report

    def ranks(self, by: SortKey) -> Iterator[Rank]:
        for number in range(2000):
            self._passes.happened()
            yield Rank(-number, number, f"c{number}")


async def crowd(
    path: Path, passes: Passes, request: bytes, ends_with: bytes, daemon: FakeDaemon | None = None
) -> None:
    """Many clients ask at the same time, and all are answered."""

    async def ask(stream: trio.SocketStream) -> None:
        answer = b""
        await stream.send_all(request)
        while not answer.endswith(ends_with):
            received = await stream.receive_some()
            assert received, answer[-200:]
            answer += received

    async with served(daemon or Watched(passes), path), AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(await trio.open_unix_socket(str(path)))
            for _ in range(CLIENTS)
        ]
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as counting:
            counting.start_soon(passes.count)
            async with trio.open_nursery() as asking:
                for stream in streams:
                    asking.start_soon(ask, stream)
            counting.cancel_scope.cancel()


async def test_a_crowd_is_answered_one_by_one(path: Path) -> None:
    passes = Passes()
    await crowd(path, passes, REQUEST, b"}")
    assert sum(passes.events.values()) == CLIENTS
    assert passes.worst() <= 2


async def test_a_crowd_gets_long_lists_a_batch_at_a_time(path: Path) -> None:
    passes = Passes()
    await crowd(path, passes, REQUEST.replace(b"status", b"limits"), b"0\r\n\r\n")
    assert sum(passes.events.values()) == CLIENTS * 300
    assert passes.worst() <= 200


async def test_a_crowd_has_limits_compared_a_batch_at_a_time(path: Path) -> None:
    passes = Passes()
    request = REQUEST.replace(b"status", b"limits?sort=demand&count=3")
    await crowd(path, passes, request, b"0\r\n\r\n")
    assert sum(passes.events.values()) == CLIENTS * 2003
    assert passes.worst() <= 1000


async def test_a_list_is_whole_though_no_time_is_left_for_a_batch(
    daemon: FakeDaemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_BATCH_S", 0.0)
    async with served(daemon, path), client(path) as one:
        assert len((await one.get("/v1/peers")).json()) == len(PEERS) > 1


class Slow(FakeDaemon):
    """Takes a while for each object: there are many limits, and many peers."""

    def __init__(self, passes: Passes, clock: MockClock) -> None:
        super().__init__()
        self._passes = passes
        self._clock = clock

    def limits(self, ids: Sequence[int] | None = None) -> Iterator[LimitReport]:
        for report in many_limits(20):
            self._clock.jump(0.003)
            self._passes.happened()
            yield report

    def peers(self) -> Iterator[PeerReport]:
        for _ in range(20):
            self._clock.jump(0.003)
            self._passes.happened()
            yield PEERS[0]


@pytest.mark.parametrize(
    ("resource", "ends_with"), [(b"peers", b"0\r\n\r\n"), (b"limits", b"0\r\n\r\n")]
)
async def test_objects_that_take_long_are_made_one_at_a_time(
    path: Path, mock_clock: MockClock, resource: bytes, ends_with: bytes
) -> None:
    passes = Passes()
    daemon = Slow(passes, mock_clock)
    await crowd(path, passes, REQUEST.replace(b"status", resource), ends_with, daemon)
    assert sum(passes.events.values()) == CLIENTS * 20
    assert passes.worst() <= 2
