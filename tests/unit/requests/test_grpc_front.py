"""gRPC over real sockets: grpcio's clients, slow ones, both protocols on one address, the end."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, StreamEnded
from h2.settings import SettingCodes

from drld.control import connection as http
from drld.control.turns import Turns
from drld.requests.caller import Client
from drld.requests.datapath import RequestDatapath
from drld.requests.front import server
from drld.requests.front.grpc_connection import GrpcConnection
from drld.requests.grpc import bounds
from drld.requests.grpc.bounds import CALL_S
from drld.requests.grpc.call import Handler, Origin
from drld.requests.spec import ITEM, RequestMatch
from tests.certificates import trusting

from ...certificates import authority, signed
from ...rls_messages import METHOD, SERVICE, request
from .fronts import GET, front, of_files
from .grpc_peer import UNARY, Client2, framed, kinds_of
from .made import bucket, limit, limited, of_plan

CALLS = 1000
"""The number of calls that grpc_client.py makes."""
ROOT = Path(__file__).resolve().parents[3]
OK, OVER, SERVING, SERVICE_UNKNOWN = 1, 2, 1, 3
NAMED = [
    *((":method", "POST"), (":scheme", "http"), (":authority", "x")),
    ("content-type", "application/grpc"),
]


def test_clients_of_both_protocols_have_as_much_time() -> None:
    assert (bounds.CALL_S, bounds.ANSWER_S) == (http.REQUEST_S, http.WRITE_S)
    assert bounds.MAX_MESSAGE_BYTES == http.MAX_BODY_BYTES


async def test_clients_of_grpcio_see_each_kind_of_answer(tmp_path: Path) -> None:
    many = limit(3, match=RequestMatch("many"), burst=2 * CALLS * ITEM)
    datapath = limited((limit(), bucket(3)), (of_plan(2), bucket(1)), (many, bucket(CALLS - 10)))
    async with front(tmp_path, datapath) as made:
        command = [sys.executable, "-m", "tests.unit.requests.grpc_client", str(made.tcp[1])]
        with trio.fail_after(600):
            ran = await trio.run_process(command, capture_stdout=True, cwd=ROOT)
    seen = json.loads(ran.stdout)
    assert seen == {
        "services": [
            "envoy.service.ratelimit.v3.RateLimitService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ],
        "peek": [OK, OK],
        "first": [OK, OK, OK],
        "refused": [OVER, OK, OVER],
        "left": [OK, OK],
        "bad": "INVALID_ARGUMENT: domain: must have 1 to 256 characters",
        "large": [2],
        "large name": "RESOURCE_EXHAUSTED: a message must have 65536 bytes at most",
        "compressed": "UNIMPLEMENTED: messages must not be compressed",
        "unknown": "UNIMPLEMENTED: there is no such method",
        "late": "DEADLINE_EXCEEDED",
        "health ": SERVING,
        f"health {SERVICE}.RateLimitService": SERVING,
        "no health": "NOT_FOUND: there is no such service",
        "watch ": SERVING,
        "watch other": SERVICE_UNKNOWN,
        "many": {str(OK): CALLS - 10, str(OVER): 10},
    }
    # What was refused, asked or broken has taken nothing.
    read = datapath.read(1, 0)
    assert read.forwarded_items == 2


class Caller:
    """A client of h2's over a stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.http = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.http.initiate_connection()
        self.events: list[Event] = []

    async def begin(self, *, ends: bool = True, path: str = METHOD) -> int:
        stream = self.http.get_next_available_stream_id()
        self.http.send_headers(stream, [*NAMED[:-1], (":path", path), NAMED[-1]])
        data = framed(request({}).SerializeToString())
        self.http.send_data(stream, data if ends else data[:3], end_stream=ends)
        await self.send()
        return stream

    async def send(self) -> None:
        await self.stream.send_all(self.http.data_to_send())

    async def until(self, found: Callable[[list[Event]], bool]) -> None:
        """Read until this has come, or the server ends the connection."""
        while not found(self.events):
            data = await self.stream.receive_some()
            if not data:
                return
            self.events += self.http.receive_data(data)

    async def answer(self, stream: int) -> tuple[dict[str, str], bytes]:
        """The headers and trailers of an answer, and its data."""
        await self.until(lambda its: any(ended(it, stream) for it in its))
        mine = [it for it in self.events if getattr(it, "stream_id", 0) == stream]
        headers = {k: v for it in mine if hasattr(it, "headers") for k, v in it.headers}
        return headers, b"".join(it.data for it in mine if isinstance(it, DataReceived))


def ended(event: Event, stream: int) -> bool:
    return isinstance(event, StreamEnded) and event.stream_id == stream


async def test_one_address_has_both_protocols(tmp_path: Path) -> None:
    async with front(tmp_path) as made:
        async with await made.stream() as stream, await made.stream() as other:
            await other.send_all(GET)
            assert (await other.receive_some()).startswith(b"HTTP/1.1 200 ")
            # As slow as a client may be: the first bytes are those of no other protocol.
            caller = Caller(stream)
            preface = caller.http.data_to_send()
            for byte in preface:
                await stream.send_all(bytes([byte]))
            headers, _ = await caller.answer(await caller.begin())
            assert headers["grpc-status"] == "0"
        path = made.addresses[1]
        assert isinstance(path, str)
        async with await trio.open_unix_socket(path) as stream:
            caller = Caller(stream)
            headers, _ = await caller.answer(await caller.begin())
            assert headers["grpc-status"] == "0"
        # The callers are an address and a user.
        assert len(made.datapath.read(1, 1).flows) == 2


async def test_calls_over_tls_are_of_the_name_of_the_certificate(tmp_path: Path) -> None:
    ca = authority(tmp_path, "ca")
    server, web = (signed(tmp_path, it, ca, f"{it}Auth") for it in ("server", "client"))
    context, trust = of_files(server, ca), trusting(ca, web)
    trust.set_alpn_protocols(["h2"])
    async with front(tmp_path, tls=lambda: context) as made:
        for own in (1, 2):
            # From two addresses.
            async with await made.stream(own) as stream:
                tls = trio.SSLStream(stream, trust, server_hostname="127.0.0.1")
                caller = Caller(tls)
                headers, _ = await caller.answer(await caller.begin())
                assert headers["grpc-status"] == "0"
        assert len(made.datapath.read(1, 1).flows) == 1


async def test_a_bug_is_an_error_and_no_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    async with front(tmp_path) as made, await made.stream() as stream:
        caller = Caller(stream)
        with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
            patched.setattr(RequestDatapath, "decide", broken)
            headers, data = await caller.answer(await caller.begin())
        assert (headers["grpc-status"], headers["grpc-message"]) == ("13", "internal error")
        assert data == b""
        assert "a gRPC call ended with an error" in caplog.text
        headers, _ = await caller.answer(await caller.begin())
        assert headers["grpc-status"] == "0"


async def test_a_slow_client_has_so_much_time(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with front(tmp_path) as made, await made.stream() as stream:
        caller = Caller(stream)
        began = trio.current_time()
        headers, _ = await caller.answer(await caller.begin(ends=False))
        assert headers["grpc-status"] == "4"
        assert trio.current_time() - began == pytest.approx(CALL_S)
        # Then it has its place for some time, and is asked to go.
        began = trio.current_time()
        await caller.until(lambda its: any(isinstance(it, ConnectionTerminated) for it in its))
        assert trio.current_time() - began == pytest.approx(bounds.IDLE_S - CALL_S)
        assert await stream.receive_some() == b"" or await stream.receive_some() == b""


async def test_a_client_that_does_not_read_has_so_much_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    # What is sent waits until the other end reads.
    mine, other = trio.testing.lockstep_stream_pair()
    connection = GrpcConnection({}, Turns(), other, Client("x"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.serve)
        await trio.testing.wait_all_tasks_blocked()
        assert await mine.receive_some()
        await Caller(mine).begin()
        began = trio.current_time()
    assert trio.current_time() - began == pytest.approx(bounds.ANSWER_S)


async def test_a_call_whose_client_gave_up_during_a_turn_of_others_is_not_decided(
    autojump_clock: trio.testing.MockClock,
) -> None:
    decided: list[bytes] = []

    def decide(message: bytes, _: Origin) -> bytes:
        decided.append(message)
        autojump_clock.jump(1.0)  # Longer than a turn.
        return message

    class Slow(Turns):
        """Turns that come when others have worked for two seconds."""

        async def wait(self) -> None:
            await trio.sleep(2.0 if decided else 0.0)

    mine, other = trio.testing.memory_stream_pair()
    connection = GrpcConnection({UNARY: Handler(decide)}, Slow(), other, Client("x"))
    peer = Client2()
    # Its own server has had the preface.
    peer.http = sent = H2Connection(H2Configuration(client_side=True))
    sent.initiate_connection()
    for message, timeout in ((b"first", "9S"), (b"given up", "2S"), (b"third", "9S")):
        stream = peer.begin(UNARY, grpc_timeout=timeout)
        sent.send_data(stream, framed(message), end_stream=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.serve)
        await mine.send_all(sent.data_to_send())
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert decided == [b"first", b"third"]


async def rest_of(stream: trio.abc.Stream) -> bytes:
    """All that comes until the end."""
    found = b""
    while data := await stream.receive_some():
        found += data
    return found


async def test_open_calls_are_answered_when_the_daemon_stops(tmp_path: Path) -> None:
    async with front(tmp_path) as made:
        async with await made.stream() as idle, await made.stream() as begun:
            first = Caller(idle)
            await first.answer(await first.begin())
            second = Caller(begun)
            await second.answer(await second.begin())
            message = request({}).SerializeToString()
            second.http.send_headers(3, [*NAMED[:-1], (":path", METHOD), NAMED[-1]])
            second.http.send_data(3, framed(message), end_stream=True)
            data = second.http.data_to_send()
            await begun.send_all(data[:-4])
            made.stopping.set()
            with trio.fail_after(60):
                assert ("GoAwayFrame", 0) in kinds_of(await rest_of(idle))
                await begun.send_all(data[-4:])
                kinds = kinds_of(await rest_of(begun))
        assert [it for it in kinds if it[1]] == [
            ("HeadersFrame", 3),
            ("DataFrame", 3),
            ("HeadersFrame", 3),
        ]
        assert kinds.count(("GoAwayFrame", 0)) == 2


async def test_a_client_that_takes_no_answer_does_not_keep_the_daemon_for_long(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with front(tmp_path) as made, await made.stream() as stream:
        caller = Caller(stream)
        caller.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
        await caller.begin()
        with trio.move_on_after(1):
            await rest_of(stream)
        made.stopping.set()
        began = trio.current_time()
        await rest_of(stream)
        most = server.SETTLE_S + http.REQUEST_S + server.TAKE_S
        assert trio.current_time() - began == pytest.approx(most)
