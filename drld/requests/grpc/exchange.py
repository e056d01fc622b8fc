"""One connection of a gRPC server, without I/O: bytes come in, calls are answered, bytes go out.

`h2` speaks HTTP/2 (RFC 9113). The rest is gRPC over HTTP/2
(https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md). Complete calls wait for `next`,
in their order, so the caller may do other work between two. A call that its client cancels
meanwhile costs nothing more.

Strangers write the input, so everything has a bound (`drld.requests.grpc.bounds`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame

from drld.requests.caller import Client
from drld.requests.grpc.bounds import (
    ANSWER_S,
    CALL_S,
    DRAIN_S,
    IDLE_S,
    MAX_CALLS,
    MAX_HEADER_BYTES,
    MAX_HELD_BYTES,
    MAX_SILENT_BYTES,
    MAX_UNREAD_BYTES,
    TAKEN_BYTES,
)
from drld.requests.grpc.call import CallError, Handler, Handlers, Origin, Status
from drld.requests.grpc.headers import failure, read_head
from drld.requests.grpc.http2 import Headers, Http2
from drld.requests.grpc.open_call import OpenCall, framed
from drld.requests.grpc.spare_frames import SpareFrames

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of HTTP/2 (RFC 9113, 3.4)."""
_LAST_STREAM = 2**31 - 1
_ANSWERED: Headers = ((b":status", b"200"), (b"content-type", b"application/grpc"))
_DONE: Headers = ((b"grpc-status", b"0"),)


class Asked(NamedTuple):
    """A message that waits for an answer."""

    stream: int
    handler: Handler
    message: bytes
    origin: Origin


class Exchange:
    """The server's side of one connection; times are seconds of any monotonic clock."""

    def __init__(self, handlers: Handlers, client: Client, now: float) -> None:
        """Begin a connection.

        Args:
            handlers: answer the calls.
            client: the client of the connection.
        """
        self._handlers = handlers
        self._client = client
        self._http = Http2(MAX_CALLS, MAX_HEADER_BYTES, (_ANSWERED, _DONE))
        self._http.initiate_connection()
        self._out = b""
        self._calls: dict[int, OpenCall] = {}
        self._ready: deque[tuple[int, bytes | Headers]] = deque()
        """Messages, and the ends of calls that no message answers. They wait until all frames are
        read: `h2` has read the next frames already when it reports one."""
        self._opens = False
        """Whether the client takes more than before."""
        self._held = self._unread = self._silent = self._taken = self._staying = 0
        self._last_headers: Sequence[Any] = ()
        self._last_head = read_head((), handlers, client)
        self._spare = SpareFrames(now)
        self._idle_until = now + CALL_S
        self._draining = False
        self.over = False
        """Whether the connection ends after `output` has been sent."""
        self._of_event: dict[type[Event], Callable[[Any, float], None]] = {
            RequestReceived: self._begin,
            DataReceived: self._data,
            StreamEnded: self._ended,
            StreamReset: self._reset,
            WindowUpdated: self._opened,
            RemoteSettingsChanged: self._settings,
            ConnectionTerminated: self._terminated,
        }

    @property
    def deadline(self) -> float:
        """The time of the next `expire` that has work, if nothing comes before."""
        least = min((it.deadline for it in self._calls.values()), default=math.inf)
        return min(least, self._idle_until) if self._idle else least

    @property
    def _idle(self) -> bool:
        """Whether no call waits for an answer."""
        return len(self._calls) == self._staying

    def output(self) -> bytes:
        """Return the bytes to send now."""
        out, self._out = self._out + self._http.data_to_send(), b""
        return out

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the client; the caller bounds how many come at a time."""
        try:
            events = self._http.receive_data(data)
        except ProtocolError:
            # The client is told by a frame.
            self.over = True
            return
        self._out += (replied := self._http.data_to_send())
        if events:
            self._silent = 0
        elif replied:
            # Late frames of a call that is over.
            self._silent = 0
            self._spare.count(now)
        else:
            self._silent += len(data)
        for event in events:
            self._of_event.get(type(event), self._spare_frame)(event, now)
        if self._taken >= TAKEN_BYTES and not self.over:
            self._http.increment_flow_control_window(self._taken)
            self._taken = 0
        if self._opens and not self.over:
            self._opens = False
            for stream, call in list(self._calls.items()):
                if call.unsent:
                    self._pump(stream, call, now)
        if self._spare.exceeded or self._silent > MAX_SILENT_BYTES:
            self._give_up()

    def next(self, now: float) -> Asked | None:
        """Return the next message that waits for an answer; None: there is none."""
        while self._ready and not self.over:
            stream, message = self._ready.popleft()
            if (call := self._calls.get(stream)) is None:
                continue
            if not isinstance(message, bytes):
                if call.refusal is not None:
                    self._respond(stream, call, call.refusal)
                call.last = message
                self._pump(stream, call, now)
            elif now >= call.give_up:
                self.fail(stream, Status.DEADLINE_EXCEEDED, "the deadline has passed")
            else:
                self._held -= call.held
                call.message = None
                self._held += call.held
                return Asked(stream, call.head.handler, message, call.head.origin)
        return None

    def reply(self, asked: Asked, message: bytes, now: float) -> None:
        """Answer a message."""
        stream = asked.stream
        call = self._calls[stream]
        self._respond(stream, call, message)
        if call.head.handler.farewell is not None and not self._draining:
            call.stays, call.deadline = True, call.give_up
            self._staying += 1
        elif not call.head.handler.streams:
            call.last = _DONE
        self._pump(stream, call, now)

    def fail(self, stream: int, status: Status, text: str) -> None:
        """End a call with a status."""
        self._end(stream, self._calls[stream], failure(status, text))

    def expire(self, now: float) -> None:
        """End the calls, or the connection, whose time has passed."""
        for stream, call in list(self._calls.items()):
            if now < call.deadline:
                continue
            if call.unsent:
                self._http.reset_stream(stream, ErrorCodes.CANCEL)
                self._forget(stream)
            else:
                self.fail(stream, Status.DEADLINE_EXCEEDED, "the call was not complete in time")
        if self._idle and now >= self._idle_until:
            if self._draining:
                self._http.close_connection()
                self.over = True
            else:
                self.drain(now)

    def drain(self, now: float) -> None:
        """Ask the client to use another connection; end after the calls that come."""
        if not self._draining and not self.over:
            self._draining = True
            # `h2` knows only the frame after which nothing is answered.
            frame = GoAwayFrame(0, last_stream_id=_LAST_STREAM, error_code=ErrorCodes.NO_ERROR)
            self._out += self._http.data_to_send() + frame.serialize()
            self._idle_until = now + DRAIN_S
            for stream, call in list(self._calls.items()):
                if call.stays:
                    self._say_farewell(stream, call, now)

    def _say_farewell(self, stream: int, call: OpenCall, now: float) -> None:
        """End a call that has stayed open."""
        self._add(call, call.head.handler.farewell or b"")
        call.stays, call.last = False, _DONE
        self._staying -= 1
        self._pump(stream, call, now)

    # Events

    def _begin(self, event: RequestReceived, now: float) -> None:
        # Mostly the same as before, and then the same objects.
        if event.headers != self._last_headers:
            self._last_headers = event.headers
            self._last_head = read_head(event.headers, self._handlers, self._client)
        head, stream = self._last_head, event.stream_id
        give_up = math.inf if head.timeout is None else now + head.timeout
        self._calls[stream] = call = OpenCall(head, give_up, min(now + CALL_S, give_up))
        if not self._draining:
            self._idle_until = now + IDLE_S
        if head.refusal is not None:
            self._settle(stream, call, head.refusal)

    def _data(self, event: DataReceived, now: float) -> None:
        stream = event.stream_id
        if event.stream_ended is None:
            self._http.acknowledge_received_data(event.flow_controlled_length, stream)
            self._spare_frame(event, now)
        else:
            # The stream needs no window any more, and that of the connection can wait.
            self._taken += event.flow_controlled_length
        call = self._calls.get(stream)
        if call is None or call.settled:
            return
        error, before = None, call.held
        try:
            for message in call.messages(event.data):
                self._ready.append((stream, message))
                if not call.blocked:
                    call.deadline = min(now + CALL_S, call.give_up)
        except CallError as raised:
            error = raised
        self._held += call.held - before
        if error is None and self._held > MAX_HELD_BYTES:
            text = f"messages that have begun must have {MAX_HELD_BYTES} bytes at most"
            error = CallError(Status.RESOURCE_EXHAUSTED, text)
        if error is not None:
            if error.status is Status.RESOURCE_EXHAUSTED:
                call.refusal = call.head.handler.too_large
            told = failure(error.status, str(error)) if call.refusal is None else _DONE
            self._settle(stream, call, told)

    def _ended(self, event: StreamEnded, _: float) -> None:
        stream = event.stream_id
        self._spare.completed()
        call = self._calls.get(stream)
        if call is None:
            return
        call.ended = True
        if call.settled:
            return
        if call.received:
            self._settle(stream, call, failure(Status.INTERNAL, "the message is cut off"))
        elif call.head.handler.streams:
            self._settle(stream, call, _DONE)
        elif call.message is None:
            text = "a call must have one message"
            self._settle(stream, call, failure(Status.UNIMPLEMENTED, text))
        else:
            self._ready.append((stream, call.message))

    def _settle(self, stream: int, call: OpenCall, headers: Headers) -> None:
        """End a call after the messages that are ready."""
        call.settled = True
        self._ready.append((stream, headers))

    def _reset(self, event: StreamReset, now: float) -> None:
        self._spare_frame(event, now)
        if event.stream_id in self._calls:
            self._forget(event.stream_id)

    def _opened(self, event: Event, now: float) -> None:
        self._spare_frame(event, now)
        self._opens = True

    def _settings(self, event: RemoteSettingsChanged, now: float) -> None:
        self._opened(event, now)
        self._http.bound_table()

    def _terminated(self, _: ConnectionTerminated, __: float) -> None:
        # `h2` sends nothing after this. Calls are answered as they come, so hardly any is lost.
        self.over = True

    def _spare_frame(self, _: Event, now: float) -> None:
        self._spare.count(now)

    # Answers

    def _respond(self, stream: int, call: OpenCall, message: bytes) -> None:
        """Begin the answer of a call if it has not begun, and add a message."""
        if not call.begun:
            self._http.send_headers(stream, _ANSWERED)
            call.begun = True
        self._add(call, message)

    def _add(self, call: OpenCall, message: bytes) -> None:
        """Add a message to the answer of a call."""
        data = framed(message)
        call.unsent += data
        self._unread += len(data)

    def _pump(self, stream: int, call: OpenCall, now: float) -> None:
        """Send as much of an answer as the client takes."""
        http = self._http
        while call.unsent:
            most = min(http.local_flow_control_window(stream), http.max_outbound_frame_size)
            if most <= 0:
                if not call.blocked:
                    call.blocked, call.deadline = True, now + ANSWER_S
                if self._unread > MAX_UNREAD_BYTES:
                    self._give_up()
                return
            part, call.unsent = call.unsent[:most], call.unsent[most:]
            self._unread -= len(part)
            http.send_data(stream, part)
        if call.last is not None:
            self._end(stream, call, call.last)
        elif call.stays:
            call.blocked, call.deadline = False, call.give_up

    def _end(self, stream: int, call: OpenCall, headers: Headers) -> None:
        """Send the trailers of a call, or all of its answer."""
        if not call.begun and headers[0][0] != b":status":
            headers = (*_ANSWERED, *headers)
        self._http.send_headers(stream, headers, end_stream=True)
        if not call.ended:
            # The client need not send the rest (RFC 9113, 8.1).
            self._http.reset_stream(stream, ErrorCodes.NO_ERROR)
        self._forget(stream)

    def _forget(self, stream: int) -> None:
        call = self._calls.pop(stream)
        self._staying -= call.stays
        self._held -= call.held
        self._unread -= len(call.unsent)

    def _give_up(self) -> None:
        """End the connection of a client that exceeds a bound."""
        if not self.over:
            self._http.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self.over = True
