"""Bytes of a stranger after the preface of HTTP/2: they are bounded, and answered in frames.

At once and in pieces. In the end no call is open, nothing is held, and the connection is over.
"""

from __future__ import annotations

from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from drld.errors import InputError
from drld.requests.caller import Client
from drld.requests.front.grpc_connection import grpc_handlers
from drld.requests.grpc import bounds
from drld.requests.grpc.call import CallError, Status
from drld.requests.grpc.exchange import PREFACE, Exchange
from tests.fuzz.targets import requests
from tests.fuzz.targets.base import Target
from tests.rls_messages import METHOD, request

PIECES = (0, 7)
"""Bytes at a time; 0: all."""


def check(data: bytes) -> bool:
    """Return whether a call was answered."""
    whole, in_pieces = (talk(data, size) for size in PIECES)
    return whole or in_pieces


def talk(data: bytes, piece: int) -> bool:
    """One connection; return whether a call was answered."""
    handlers = grpc_handlers(requests.serving()[0], lambda: 0, tuple)
    exchange = Exchange(handlers, Client("192.0.2.1"), 0)
    exchange.receive(PREFACE, 0)
    answered = False
    for start in range(0, len(data), piece or max(len(data), 1)):
        if exchange.over:
            break
        exchange.receive(data[start : start + (piece or len(data))], 0)
        while (asked := exchange.next(0)) is not None:
            try:
                answer = asked.handler.answer(asked.message, asked.origin)
            except CallError as error:
                exchange.fail(asked.stream, error.status, str(error))
            except InputError as error:
                exchange.fail(asked.stream, Status.INVALID_ARGUMENT, str(error))
            else:
                exchange.reply(asked, answer, 0)
                answered = True
        assert 0 <= exchange._held <= bounds.MAX_HELD_BYTES + bounds.MAX_MESSAGE_BYTES
        assert len(exchange._calls) <= bounds.MAX_CALLS
        well_formed(exchange.output())
    now = 0.0
    while not exchange.over:
        assert exchange.deadline >= now
        now = exchange.deadline
        exchange.expire(now)
        well_formed(exchange.output())
        assert now <= bounds.CALL_S + bounds.ANSWER_S + bounds.IDLE_S + bounds.DRAIN_S
        if not exchange._calls:
            assert exchange._held == exchange._unread == 0
    return answered


def well_formed(data: bytes) -> None:
    """The sent bytes are whole frames."""
    at = 0
    while at < len(data):
        frame, length = Frame.parse_frame_header(memoryview(data[at : at + 9]), strict=True)
        frame.parse_body(memoryview(data[at + 9 : at + 9 + length]))
        at += 9 + length
    assert at == len(data)


def seeds() -> list[bytes]:
    named = {":method": "POST", ":path": METHOD, "content-type": "application/grpc"}
    block = Encoder().encode([*named.items(), ("grpc-timeout", "9S")])
    message = request({"plan": "free"}).SerializeToString()
    data = b"\0" + len(message).to_bytes(4, "big") + message
    reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    other = Encoder().encode([*{**named, ":path": reflection}.items()])
    watch = Encoder().encode([*{**named, ":path": "/grpc.health.v1.Health/Watch"}.items()])
    settings = SettingsFrame(0, {SettingsFrame.INITIAL_WINDOW_SIZE: 9, 1: 2**31})
    call: tuple[Frame, ...] = (
        HeadersFrame(1, block, flags=["END_HEADERS"]),
        DataFrame(1, data, flags=["END_STREAM"]),
    )
    sent: list[list[Frame]] = [
        [SettingsFrame(0), *call],
        [settings, *call, WindowUpdateFrame(1, 50), WindowUpdateFrame(0, 9), SettingsFrame(0)],
        [
            *(SettingsFrame(0), HeadersFrame(1, block[:9]), ContinuationFrame(1, block[9:20])),
            *(ContinuationFrame(1, block[20:], flags=["END_HEADERS"]), DataFrame(1, data[:4])),
            *(DataFrame(1, data[4:], flags=["END_STREAM"]), RstStreamFrame(1, 8)),
        ],
        [
            *(SettingsFrame(0), HeadersFrame(1, other, flags=["END_HEADERS"])),
            *(DataFrame(1, b"\0\0\0\0\2\x3a\0"), PingFrame(0, b"12345678")),
            *(DataFrame(1, b"", flags=["END_STREAM"]), PriorityFrame(3), GoAwayFrame(0)),
        ],
        [
            *(settings, HeadersFrame(1, watch, flags=["END_HEADERS"])),
            *(DataFrame(1, b"\0\0\0\0\0", flags=["END_STREAM"]), WindowUpdateFrame(1, 50)),
        ],
    ]
    return [b"".join(frame.serialize() for frame in frames) for frames in sent]


WORDS = (
    *(
        b"\0\0\0\4\0\0\0\0\0",
        b"\0\0\x08\6\0\0\0\0\0",
        b"\0\0\4\3\0\0\0\0\1",
        b"\0\0\4\x08\0\0\0\0\1",
    ),
    *(b"\0\0\0\0\1\0\0\0\1", b"\0\0\5\1\4\0\0\0\3", b"\0\0\5\x09\4\0\0\0\1", b"\0\0\5\2\0\0\0\0\1"),
    *(b"\x83", b"\x84", b"\xbe", b"\x3f\xe1\x1f", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"),
)
TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
