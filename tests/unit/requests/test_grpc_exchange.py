"""The gRPC server without I/O, against h2's client: statuses, flow control, bounds, and the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamReset,
    TrailersReceived,
)
from h2.events import StreamEnded as Ended
from h2.exceptions import TooManyStreamsError
from h2.settings import SettingCodes, Settings
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
from drld.requests.grpc.call import CallError, Handler, Origin, Status
from drld.requests.grpc.exchange import PREFACE, Exchange

UNARY, STREAM, FAILS = b"/a.B/Unary", b"/a.B/Stream", b"/a.B/Fails"
STAYS = b"/a.B/Stays"


def echo(data: bytes, origin: Origin) -> bytes:
    return data + ",".join((str(origin.client), *origin.forwarded)).encode()


def fails(_: bytes, __: Origin) -> bytes:
    raise CallError(Status.NOT_FOUND, "there is 0 % of é")


HANDLERS = {
    UNARY: Handler(echo), STREAM: Handler(echo, streams=True), FAILS: Handler(fails),
    STAYS: Handler(echo, farewell=b"bye"),
}  # fmt: skip


def kinds_of(data: bytes) -> list[tuple[str, int]]:
    """The frames of an output, and their streams: h2's client takes none after a GOAWAY."""
    kinds, at = [], 0
    while at < len(data):
        frame, length = Frame.parse_frame_header(memoryview(data[at : at + 9]))
        kinds.append((type(frame).__name__, frame.stream_id))
        at += 9 + length
    return kinds


def framed(message: bytes, compressed: bool = False) -> bytes:
    return bytes([compressed]) + len(message).to_bytes(4, "big") + message


class Client2:
    """A client, and the server that it talks to."""

    def __init__(self, window: int = 65_535) -> None:
        self.now = 0.0
        self.http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        window_size = {SettingCodes.INITIAL_WINDOW_SIZE: window}
        self.http.local_settings = Settings(client=True, initial_values=window_size)
        self.http.initiate_connection()
        self.server = Exchange(HANDLERS, Client("me"), self.now)
        self.answered = 0
        self.events: list[Event] = []
        self.flush()

    def flush(self, extra: bytes = b"") -> None:
        """Send what is to be sent, have it answered, and take the answers."""
        self.server.receive(self.http.data_to_send() + extra, self.now)
        self.answer()

    def answer(self) -> None:
        while (asked := self.server.next(self.now)) is not None:
            self.answered += 1
            try:
                answer = asked.handler.answer(asked.message, asked.origin)
            except CallError as error:
                self.server.fail(asked.stream, error.status, str(error))
            else:
                self.server.reply(asked, answer, self.now)
        self.take()

    def take(self) -> None:
        if data := self.server.output():
            self.events += self.http.receive_data(data)

    def frames(self, *frames: Frame) -> None:
        """Send frames that no client of h2's would."""
        self.flush(b"".join(frame.serialize() for frame in frames))

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.server.expire(self.now)
        self.take()

    def begin(self, path: bytes = UNARY, **headers: str) -> int:
        stream = self.http.get_next_available_stream_id()
        given = {":method": "POST", ":scheme": "http", ":path": path.decode(), ":authority": "x"}
        given |= {"content-type": "application/grpc", "te": "trailers"}
        given |= {name.replace("_", "-").replace("--", ":"): it for name, it in headers.items()}
        self.http.send_headers(stream, list(given.items()))
        return stream

    def send(self, stream: int, data: bytes, ends: bool = True) -> None:
        """Send data in frames, as far as windows allow."""
        for start in range(0, len(data) or 1, 16_000):
            if self.server.over or self.http.streams[stream].closed:
                return
            part = data[start : start + 16_000]
            self.http.send_data(stream, part, end_stream=ends and start + 16_000 >= len(data))
            self.flush()

    def call(self, message: bytes = b"hi", path: bytes = UNARY, **headers: str) -> int:
        stream = self.begin(path, **headers)
        self.send(stream, framed(message))
        return stream

    def of(self, stream: int) -> tuple[dict[str, str], bytes]:
        """The headers and trailers of an answer, and its data."""
        headers: dict[str, str] = {}
        data = b""
        for event in self.events:
            if getattr(event, "stream_id", None) != stream:
                continue
            if isinstance(event, ResponseReceived | TrailersReceived):
                headers |= {str(name): str(value) for name, value in event.headers}
            elif isinstance(event, DataReceived):
                data += event.data
        return headers, data

    def status(self, stream: int) -> str:
        """The status of a call that has ended."""
        assert any(isinstance(it, Ended) and it.stream_id == stream for it in self.events)
        return self.of(stream)[0]["grpc-status"]

    def ended_by(self) -> ErrorCodes | int | None:
        """The error that ended the connection; None: it lives."""
        if not self.server.over:
            return None
        (event,) = [it for it in self.events if isinstance(it, ConnectionTerminated)]
        return event.error_code


@pytest.fixture
def client() -> Client2:
    return Client2()


def test_a_call_is_answered(client: Client2) -> None:
    stream = client.call(b"hi", x_forwarded_for="10.0.0.1")
    headers, data = client.of(stream)
    assert headers == {":status": "200", "content-type": "application/grpc", "grpc-status": "0"}
    assert data == framed(b"hime,10.0.0.1")
    assert client.status(stream) == "0"


def test_many_calls_at_once_are_answered_in_their_order(client: Client2) -> None:
    streams = []
    for number in range(bounds.MAX_CALLS):
        streams.append(client.begin())
        client.http.send_data(streams[-1], framed(b"%d" % number), end_stream=True)
    client.flush()
    assert [client.of(it)[1] for it in streams] == [
        framed(b"%dme" % number) for number in range(bounds.MAX_CALLS)
    ]


def test_a_call_may_come_byte_by_byte() -> None:
    client = Client2()
    client.begin()
    client.http.send_data(1, framed(b"hi"), end_stream=True)
    for byte in client.http.data_to_send():
        client.server.receive(bytes([byte]), 0)
    client.answer()
    assert client.of(1)[1] == framed(b"hime")


def test_a_stream_answers_each_message_until_its_end(client: Client2) -> None:
    stream = client.begin(STREAM)
    for message in (b"a", b"b"):
        client.http.send_data(stream, framed(message))
        client.flush()
        assert client.of(stream)[1].endswith(framed(message + b"me"))
    client.later(bounds.CALL_S - 1)
    client.http.send_data(stream, framed(b"c") + framed(b"d"), end_stream=True)
    client.flush()
    assert client.of(stream)[1].endswith(framed(b"cme") + framed(b"dme"))
    assert client.status(stream) == "0"
    empty = client.begin(STREAM)
    client.http.end_stream(empty)
    client.flush()
    assert client.status(empty) == "0"


def test_an_error_is_told_in_ascii(client: Client2) -> None:
    headers, _ = client.of(client.call(path=FAILS))
    assert headers["grpc-status"] == "5"
    assert headers["grpc-message"] == "there is 0 %25 of %C3%A9"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"--method": "GET"}, "405"), ({"content_type": "text/plain"}, "415")],
)
def test_what_is_no_grpc_gets_a_status_of_http(
    client: Client2, headers: dict[str, str], status: str
) -> None:
    found, data = client.of(client.call(b"hi", UNARY, **headers))
    assert found[":status"] == status
    assert "grpc-status" not in found
    assert data == b""
    assert client.answered == 0


@pytest.mark.parametrize(
    ("sent", "headers", "status"),
    [
        (framed(b"compressed", compressed=True), {}, Status.INTERNAL),
        (framed(b"hi", compressed=True), {"grpc_encoding": "gzip"}, Status.UNIMPLEMENTED),
        (b"\0" + (bounds.MAX_MESSAGE_BYTES + 1).to_bytes(4, "big"), {}, Status.RESOURCE_EXHAUSTED),
        (framed(b"hi") * 2, {}, Status.UNIMPLEMENTED),
        (b"", {}, Status.UNIMPLEMENTED),
        (framed(b"hi")[:-1], {}, Status.INTERNAL),
        (b"\0\0", {}, Status.INTERNAL),
        (framed(b"hi"), {"grpc_timeout": "5"}, Status.INTERNAL),
        (framed(b"hi"), {"grpc_timeout": "123456789S"}, Status.INTERNAL),
        (framed(b"hi"), {"grpc_timeout": "0n"}, Status.DEADLINE_EXCEEDED),
        (framed(b"hi"), {"--path": "/a.B/Other"}, Status.UNIMPLEMENTED),
    ],
)
def test_what_cannot_be_answered_gets_a_status(
    client: Client2, sent: bytes, headers: dict[str, str], status: Status
) -> None:
    for ends in (True, False):
        stream = client.begin(UNARY, **headers)
        client.send(stream, sent, ends)
        client.later(0)
        if not ends and status is not Status.RESOURCE_EXHAUSTED and not headers and len(sent) < 14:
            continue  # More may come.
        assert client.status(stream) == str(status.value)
        if not ends:
            # The rest need not be sent.
            assert any(isinstance(it, StreamReset) for it in client.events)
    assert client.answered == 0
    assert client.of(client.call())[1] == framed(b"hime")


def test_a_compressed_message_is_answered_with_what_is_taken(client: Client2) -> None:
    stream = client.begin(grpc_encoding="gzip")
    client.http.send_data(stream, framed(b"hi", compressed=True), end_stream=True)
    client.flush()
    assert client.of(stream)[0]["grpc-accept-encoding"] == "identity"


def test_a_call_must_be_complete_in_time(client: Client2) -> None:
    late, soon = client.begin(), client.begin(grpc_timeout="1500m")
    client.http.send_data(late, b"\0")
    client.flush()
    assert client.server.deadline == 1.5
    client.later(1.5)
    assert client.status(soon) == "4"
    assert client.server.deadline == bounds.CALL_S
    client.later(bounds.CALL_S)
    assert client.status(late) == "4"
    assert client.ended_by() is None


def test_a_stream_must_go_on_in_time(client: Client2) -> None:
    stream = client.begin(STREAM)
    client.http.send_data(stream, framed(b"a"))
    client.flush()
    client.later(bounds.CALL_S)
    assert client.status(stream) == "4"


def test_a_call_that_its_client_takes_back_costs_nothing(client: Client2) -> None:
    for path in (UNARY, STREAM, b"/other"):
        stream = client.begin(path)
        client.http.send_data(stream, framed(b"a"), end_stream=path != STREAM)
        client.http.reset_stream(stream)
        client.flush()
    assert client.answered == 0
    assert client.of(client.call())[1] == framed(b"hime")


def test_an_answer_goes_out_as_the_client_takes_it() -> None:
    client = Client2(window=4)
    stream = client.call(b"x" * 100)
    assert len(client.of(stream)[1]) == 4
    client.http.increment_flow_control_window(50, stream)
    client.flush()
    assert len(client.of(stream)[1]) == 54
    client.http.increment_flow_control_window(53, stream)
    client.flush()
    assert client.of(stream)[1] == framed(b"x" * 100 + b"me")
    assert client.status(stream) == "0"
    # It may be taken back meanwhile, and the window may open at the same time.
    other = client.call(b"x" * 100)
    client.http.increment_flow_control_window(50, other)
    client.http.reset_stream(other)
    client.flush()
    assert client.server.deadline == bounds.IDLE_S


def test_settings_open_windows_too() -> None:
    client = Client2(window=0)
    stream = client.call(b"x" * 20_000)
    assert client.of(stream)[1] == b""
    client.http.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 30_000})
    client.flush()
    assert len(client.of(stream)[1]) == 20_007


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


def test_what_is_no_http2_ends_the_connection() -> None:
    server = Exchange(HANDLERS, Client("me"), 0)
    server.receive(b"GET / HTTP/1.1\r\n\r\n" + bytes(50), 0)
    assert server.over
    assert server.next(0) is None


def test_a_client_cannot_have_us_remember_much(client: Client2) -> None:
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


def test_an_idle_connection_ends_gently(client: Client2) -> None:
    assert client.server.deadline == bounds.CALL_S
    client.call()
    client.now = 100.0
    client.call()
    assert client.server.deadline == 100 + bounds.IDLE_S
    client.later(bounds.IDLE_S)
    first = next(it for it in client.events if isinstance(it, ConnectionTerminated))
    assert (first.error_code, first.last_stream_id) == (ErrorCodes.NO_ERROR, 2**31 - 1)
    assert not client.server.over
    client.later(bounds.DRAIN_S)
    assert client.server.over


def test_a_call_that_stays_ends_with_the_connection(client: Client2) -> None:
    stream = client.call(path=STAYS)
    assert client.of(stream)[1] == framed(b"hime")
    # It takes no part in the bounds on calls that wait for an answer, and is no reason to stay.
    client.later(bounds.CALL_S + bounds.ANSWER_S)
    assert client.server.deadline == bounds.IDLE_S
    client.now = 100.0
    assert client.status(client.call()) == "0"
    assert client.server.deadline == 100.0 + bounds.IDLE_S
    data = client.http.data_to_send()
    client.server.expire(100.0 + bounds.IDLE_S)
    assert kinds_of(out := client.server.output()) == [
        ("GoAwayFrame", 0), ("DataFrame", stream), ("HeadersFrame", stream)
    ]  # fmt: skip
    assert framed(b"bye") in out
    assert not client.server._calls
    # One that comes after that is told both at once.
    again = client.begin(path=STAYS)
    client.http.send_data(again, framed(b""), end_stream=True)
    client.server.receive(data + client.http.data_to_send(), 400.1)
    asked = client.server.next(400.1)
    assert asked is not None
    client.server.reply(asked, b"hello", 400.1)
    assert kinds_of(client.server.output())[-1] == ("HeadersFrame", again)
    client.server.expire(100.0 + bounds.IDLE_S + bounds.DRAIN_S)
    assert client.server.over


def test_calls_that_stay_end_by_their_deadline_or_their_client_and_have_their_bound() -> None:
    client = Client2()
    timed = client.call(path=STAYS, grpc_timeout="9S")
    client.later(9.0)
    assert client.status(timed) == str(int(Status.DEADLINE_EXCEEDED))
    taken_back = client.call(path=STAYS)
    client.http.reset_stream(taken_back)
    client.flush()
    assert not client.server._calls
    assert client.server._staying == 0
    for _ in range(bounds.MAX_CALLS):
        client.call(path=STAYS)
    assert client.server._staying == bounds.MAX_CALLS
    client.http.remote_settings.max_concurrent_streams = 1000
    with pytest.raises(TooManyStreamsError):
        client.call(path=STAYS)


def test_an_answer_of_a_call_that_stays_is_taken_in_time() -> None:
    client = Client2(window=3)
    stream = client.call(path=STAYS)
    assert client.server.deadline == bounds.ANSWER_S
    client.http.increment_flow_control_window(100, stream)
    client.flush()
    assert client.of(stream)[1] == framed(b"hime")
    assert client.server.deadline == bounds.IDLE_S
    other = client.call(path=STAYS)
    client.later(bounds.ANSWER_S)
    assert any(isinstance(it, StreamReset) and it.stream_id == other for it in client.events)
    assert client.server._staying == 1


def test_open_calls_are_answered_when_the_daemon_stops() -> None:
    client = Client2()
    client.begin()
    client.http.send_data(1, framed(b"hi")[:3])
    # What the client sends before it has read the GOAWAY is answered too.
    client.begin()
    client.http.send_data(3, framed(b"ho"), end_stream=True)
    client.http.send_data(1, framed(b"hi")[3:], end_stream=True)
    sent = client.http.data_to_send()
    client.server.receive(sent[:60], 0)
    client.server.drain(0)
    client.server.drain(0)
    client.server.expire(bounds.DRAIN_S)
    assert not client.server.over
    client.server.receive(sent[60:], 0)
    while (asked := client.server.next(0)) is not None:
        client.server.reply(asked, b"yes", 0)
    kinds = kinds_of(client.server.output())
    assert ("GoAwayFrame", 0) in kinds
    assert [it for it in kinds if it[0] == "DataFrame"] == [("DataFrame", 3), ("DataFrame", 1)]
    client.server.expire(bounds.DRAIN_S)
    assert client.server.over


def test_a_client_that_says_goodbye_ends_the_connection(client: Client2) -> None:
    client.http.close_connection()
    client.flush()
    assert client.server.over
