"""A client of Envoy's rate limit service that costs little: prepared frames over one connection.

It has so many calls open at a time, and begins as many as end. Headers are in the table of HPACK
after the first call, as with every client that keeps its connection.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Sequence

from hpack import Encoder
from hyperframe.frame import DataFrame, HeadersFrame, PingFrame, SettingsFrame, WindowUpdateFrame

from drld.requests.grpc.exchange import PREFACE
from drld.requests.grpc.schema import CODE, RATE_LIMIT_REQUEST, RATE_LIMIT_RESPONSE
from testbed.errors import MeasurementError

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
OPEN = 32
"""Calls at a time."""
_WINDOW = 2**31 - 1
_DATA, _SETTINGS, _PING, _GOAWAY = 0, 4, 6, 7
_END_STREAM = _ACK = 1
_HEAD = 9
_PATIENCE_S = 60.0


def question(user: str, plan: str) -> bytes:
    """A message of Envoy's, with its head."""
    entries = [{"key": "plan", "value": plan}, {"key": "user", "value": user}]
    asked = {"domain": "bench", "descriptors": [{"entries": entries}]}
    message = RATE_LIMIT_REQUEST.encode(asked)
    return b"\0" + len(message).to_bytes(4, "big") + message


class Client:
    """A connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._sock = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        settings = SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: _WINDOW})
        window = WindowUpdateFrame(0, _WINDOW - 65_535)
        self._sock.sendall(PREFACE + settings.serialize() + window.serialize())
        encoder = Encoder()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", METHOD), (":authority", "x")]
        headers += [("content-type", "application/grpc"), ("te", "trailers")]
        headers += [("grpc-timeout", "9S")]
        self._blocks = [encoder.encode(headers), encoder.encode(headers)]
        self._next = 1
        self._rest = b""

    def close(self) -> None:
        """End the connection."""
        self._sock.close()

    def ask(self, questions: Sequence[bytes]) -> int:
        """Have all answered; return how many were refused.

        Raises:
            MeasurementError: the server ends the connection.
        """
        waiting = iter(questions)
        done = refused = 0
        self._sock.sendall(b"".join(map(self._call, itertools.islice(waiting, OPEN))))
        while done < len(questions):
            ended, no = self._receive()
            done += ended
            refused += no
            if more := b"".join(map(self._call, itertools.islice(waiting, ended))):
                self._sock.sendall(more)
        return refused

    def _call(self, message: bytes) -> bytes:
        stream, block = self._next, self._blocks[min(self._next - 1, 1)]
        self._next += 2
        headers = HeadersFrame(stream, block, flags=["END_HEADERS"])
        return headers.serialize() + DataFrame(stream, message, flags=["END_STREAM"]).serialize()

    def _receive(self) -> tuple[int, int]:
        """Calls that have ended, and answers that say no, in what has come."""
        if not (more := self._sock.recv(65_536)):
            raise MeasurementError("the server hung up")
        data = self._rest + more
        at = ended = refused = 0
        while len(data) - at >= _HEAD:
            size = int.from_bytes(data[at : at + 3], "big")
            if len(data) - at < _HEAD + size:
                break
            kind, flags = data[at + 3], data[at + 4]
            if kind == _DATA and size:
                answer = RATE_LIMIT_RESPONSE.decode(data[at + _HEAD + 5 : at + _HEAD + size])
                refused += answer["overall_code"] == CODE.values["OVER_LIMIT"]
            elif kind == _SETTINGS and not flags & _ACK:
                self._sock.sendall(SettingsFrame(0, flags=["ACK"]).serialize())
            elif kind == _PING and not flags & _ACK:
                # grpcio hangs up when a minute has passed without the answer to one.
                ping = data[at + _HEAD : at + _HEAD + size]
                self._sock.sendall(PingFrame(0, ping, flags=["ACK"]).serialize())
            elif kind == _GOAWAY:
                error = int.from_bytes(data[at + _HEAD + 4 : at + _HEAD + 8], "big")
                why = data[at + _HEAD + 8 : at + _HEAD + size].decode("ascii", "replace")
                text = f"the server on port {self._port} sent GOAWAY: error {error} {why}"
                raise MeasurementError(text.rstrip())
            if kind < 2 and flags & _END_STREAM:
                ended += 1
            at += _HEAD + size
        self._rest = data[at:]
        return ended, refused
