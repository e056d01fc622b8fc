"""A gRPC client by h2's client, and the server without I/O that it talks to."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, TrailersReceived
from h2.events import StreamEnded as Ended
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame

from drld.requests.caller import Client
from drld.requests.grpc.call import CallError, Handler, Origin, Status
from drld.requests.grpc.exchange import Exchange

UNARY, STREAM, FAILS = b"/a.B/Unary", b"/a.B/Stream", b"/a.B/Fails"
STAYS, NO = b"/a.B/Stays", b"/a.B/No"


def echo(data: bytes, origin: Origin) -> bytes:
    return data + ",".join((str(origin.client), *origin.forwarded)).encode()


def fails(_: bytes, __: Origin) -> bytes:
    raise CallError(Status.NOT_FOUND, "there is 0 % of é")


HANDLERS = {
    UNARY: Handler(echo), STREAM: Handler(echo, streams=True), FAILS: Handler(fails),
    STAYS: Handler(echo, farewell=b"bye"), NO: Handler(echo, too_large=b"no"),
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
