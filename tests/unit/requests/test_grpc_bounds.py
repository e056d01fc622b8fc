"""The bounds of the gRPC server without I/O: time, memory, and floods of frames."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import StreamReset
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from drld.requests.caller import Client
from drld.requests.grpc import bounds
from drld.requests.grpc.call import Status
from drld.requests.grpc.exchange import PREFACE, Exchange

from .grpc_peer import HANDLERS, NO, UNARY, Client2, framed


@pytest.fixture
def client() -> Client2:
    return Client2()


def test_an_answer_must_be_taken_in_time() -> None:
    client = Client2(window=4)
    stream = client.call(b"x" * 100)
    client.later(bounds.ANSWER_S - 1)
    client.http.increment_flow_control_window(1, stream)
    client.flush()
    client.later(1)
    resets = [it for it in client.events if isinstance(it, StreamReset)]
    assert [it.error_code for it in resets] == [ErrorCodes.CANCEL]
    assert client.ended_by() is None


def test_answers_that_wait_are_bounded() -> None:
    client = Client2(window=0)
    size = 20_000
    calls = 0
    while not client.server.over:
        client.call(b"x" * size)
        calls += 1
    assert client.ended_by() is ErrorCodes.ENHANCE_YOUR_CALM
    assert calls == bounds.MAX_UNREAD_BYTES // size + 1


def test_messages_that_have_begun_are_bounded() -> None:
    client = Client2(window=100_000)
    whole = framed(b"x" * bounds.MAX_MESSAGE_BYTES)
    streams = [client.begin() for _ in range(5)]
    for stream in streams:
        client.send(stream, whole[:60_000], ends=False)
    assert client.status(streams[-1]) == str(Status.RESOURCE_EXHAUSTED.value)
    client.http.increment_flow_control_window(100_000)
    client.send(streams[0], whole[60_000:])
    assert client.status(streams[0]) == "0"
    for stream in streams[1:4]:
        client.http.reset_stream(stream)
    # All is free again.
    assert client.status(client.call(b"x" * 40_000)) == "0"
    assert client.server._held == 0


@pytest.mark.parametrize("ends", [True, False])
def test_a_message_above_a_bound_has_the_answer_of_its_method(ends: bool) -> None:
    client = Client2(window=100_000)
    large = client.begin(NO)
    client.send(large, framed(b"x" * (bounds.MAX_MESSAGE_BYTES + 1)), ends)
    streams = [client.begin(NO) for _ in range(5)]
    for stream in streams:
        client.send(stream, framed(b"x" * bounds.MAX_MESSAGE_BYTES)[:60_000], ends=False)
    for stream in (large, streams[-1]):
        assert client.status(stream) == "0"
        assert client.of(stream)[1] == framed(b"no")
    assert client.answered == 0
    assert client.server._held == 4 * 60_000
    assert client.of(client.call(path=NO))[1] == framed(b"hime")


def test_calls_are_bounded(client: Client2) -> None:
    client.http.remote_settings.max_concurrent_streams = 1000
    client.http.remote_settings.acknowledge()
    for _ in range(bounds.MAX_CALLS):
        client.begin()
    client.flush()
    assert client.ended_by() is None
    client.begin()
    client.flush()
    assert client.ended_by() is ErrorCodes.PROTOCOL_ERROR


def test_headers_are_bounded(client: Client2) -> None:
    client.call(x_large="x" * (bounds.MAX_HEADER_BYTES - 400))
    assert client.ended_by() is None
    client.call(x_large="y" * bounds.MAX_HEADER_BYTES)
    assert client.ended_by() is ErrorCodes.ENHANCE_YOUR_CALM


def floods() -> dict[str, tuple[Callable[[int], Iterable[Frame]], ErrorCodes]]:
    calm, wrong = ErrorCodes.ENHANCE_YOUR_CALM, ErrorCodes.PROTOCOL_ERROR
    names = [(":method", "POST"), (":path", UNARY.decode()), ("content-type", "application/grpc")]
    block = Encoder().encode(names)
    return {
        "pings": (lambda _: [PingFrame(0, b"12345678")], calm),
        "settings": (lambda _: [SettingsFrame(0)], calm),
        "windows": (lambda _: [WindowUpdateFrame(0, 1)], calm),
        "priorities": (lambda n: [PriorityFrame(2 * n + 1, 0, 16, False)], calm),
        "rapid resets": (
            lambda n: [
                HeadersFrame(2 * n + 1, block, flags=["END_HEADERS"]),
                RstStreamFrame(2 * n + 1, 8),
            ],
            calm,
        ),
        "empty data": (
            lambda n: [
                *([HeadersFrame(1, block, flags=["END_HEADERS"])] if not n else []),
                DataFrame(1, b""),
            ],
            calm,
        ),
        "small data": (
            lambda n: [
                *([HeadersFrame(1, block, flags=["END_HEADERS"])] if not n else []),
                DataFrame(1, b"\0\0\0\xff\xff"[n : n + 1] or b"x"),
            ],
            calm,
        ),
        "late data": (
            lambda n: [
                *([HeadersFrame(1, block, flags=["END_HEADERS"])] if not n else []),
                *([RstStreamFrame(1, 8)] if not n else []),
                DataFrame(1, b"x" * 60),
            ],
            calm,
        ),
        "continuations": (
            lambda n: [
                *([HeadersFrame(1, block)] if not n else []),
                ContinuationFrame(1, b"\x84"),
            ],
            wrong,
        ),
        "a long header block": (
            lambda n: [
                *([HeadersFrame(1, block)] if not n else []),
                ContinuationFrame(1, b"\x84" * 16_000),
            ],
            calm,
        ),
    }


@pytest.mark.parametrize("kind", floods())
def test_floods_end_the_connection(kind: str) -> None:
    make, code = floods()[kind]
    server = Exchange(HANDLERS, Client("me"), 0)
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.receive_data(server.output())
    sent, number, answers = PREFACE + SettingsFrame(0).serialize(), 0, b""
    while not server.over:
        server.receive(sent, 0)
        while server.next(0) is not None:
            pass
        answers += server.output()
        sent = b"".join(frame.serialize() for frame in make(number))
        number += 1
        assert number < 5 * bounds.SPARE_FRAMES
    # GOAWAY comes last: its error code is in the last bytes.
    assert int.from_bytes(answers[-4:], "big") == code


def test_frames_are_forgiven_with_time_and_with_calls(client: Client2) -> None:
    for _ in range(20):
        for _ in range(int(bounds.SPARE_FRAMES_PER_S) - 1):
            client.frames(PingFrame(0, b"12345678"))
        client.now += 1
    for _ in range(bounds.SPARE_FRAMES):
        client.call()
        client.events.clear()
        client.frames(PingFrame(0, b"12345678"), WindowUpdateFrame(0, 1))
    assert client.ended_by() is None


def test_a_frame_that_never_ends_is_not_waited_for(client: Client2) -> None:
    """h2 takes it whole before it looks at its length."""
    client.server.receive((2**24 - 1).to_bytes(3, "big") + b"\0\0\0\0\0\1", 0)
    for _ in range(bounds.MAX_SILENT_BYTES // 4096 + 1):
        assert not client.server.over
        client.server.receive(bytes(4096), 0)
    assert client.server.over


def test_bytes_that_are_no_http2_end_the_connection() -> None:
    server = Exchange(HANDLERS, Client("me"), 0)
    server.receive(b"GET / HTTP/1.1\r\n\r\n" + bytes(50), 0)
    assert server.over
    assert server.next(0) is None


def test_a_client_cannot_make_the_server_remember_much(client: Client2) -> None:
    client.http.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**31})
    client.flush()
    assert client.server._http.encoder.header_table_size == 4096
    for number in range(1500):
        client.call(path=b"/%d" % number)
        client.events.clear()
    # A smaller table is kept to as well, and h2's client sees that it was told.
    client.http.update_settings({SettingCodes.HEADER_TABLE_SIZE: 100})
    client.flush()
    assert client.server._http.encoder.header_table_size == 100
    assert client.status(client.call()) == "0"
    assert len(client.server._http._closed_streams) <= 1000


def test_settings_that_http2_does_not_know_are_forgotten(client: Client2) -> None:
    for first in range(256, 62_000, 2560):
        numbers = [SettingCodes.MAX_FRAME_SIZE, *range(first, first + 2560)]
        # hyperframe writes no such settings.
        body = b"".join(struct.pack(">HI", number, 16384 + first) for number in numbers)
        client.flush(struct.pack(">IBI", len(body) << 8 | SettingsFrame.type, 0, 0) + body)
    settings = client.server._http.remote_settings
    assert len(settings) <= len(SettingCodes)
    assert settings.max_frame_size == 16384 + first
    assert client.status(client.call()) == "0"
