"""Envoy's messages: read as Google's library reads them, and answered for each descriptor.

Its texts are bytes here, as ours need not be UTF-8. Groups are refused by us alone.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from drld.errors import InputError
from drld.requests.caller import Client
from drld.requests.grpc.call import CallError, Origin
from drld.requests.grpc.ratelimit import MAX_DESCRIPTORS, RateLimitService
from drld.requests.grpc.schema import RATE_LIMIT_REQUEST
from tests import rls_messages
from tests.fuzz.targets import requests
from tests.fuzz.targets.base import Target

OK, OVER = 1, 2


def check(data: bytes) -> bool:
    """The codec against its oracle; and whatever is read is answered, or refused with a reason."""
    oracle = rls_messages.message(f"{rls_messages.SERVICE}.RateLimitRequest", texts=False)
    try:
        googles = oracle.FromString(data)
    except DecodeError:
        googles = None
    refusal = ""
    try:
        mine = RATE_LIMIT_REQUEST.decode(data)
    except InputError as error:
        refusal = str(error)
    if refusal:
        assert googles is None or "group" in refusal, data
        return False
    assert googles is not None, data
    assert as_sent(mine) == plain(googles), data
    answered(data, len(mine.get("descriptors", ())))
    return True


def answered(data: bytes, count: int) -> None:
    """The service answers for each descriptor, or says what is wrong."""
    service = RateLimitService(requests.serving()[0], lambda: 0, tuple)
    try:
        answer = service.should_rate_limit(data, Origin(Client("192.0.2.1"), ()))
    except (CallError, InputError):
        return
    response = rls_messages.response(answer)
    assert response.SerializeToString() == answer
    codes = [it.code for it in response.statuses]
    assert 1 <= len(codes) == count <= MAX_DESCRIPTORS
    assert {*codes} <= {OK, OVER}
    assert response.overall_code == max(codes)


def as_sent(value: Any) -> Any:
    """A message with its texts as bytes, without zeros and empty texts: they are the defaults."""
    if isinstance(value, list):
        return [as_sent(it) for it in value]
    if isinstance(value, dict):
        its = {name: as_sent(it) for name, it in value.items()}
        return {name: it for name, it in its.items() if it or isinstance(it, dict)}
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def plain(message: Any) -> dict[str, Any]:
    """A message of Google's as a dictionary."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            found[field.name] = value
        elif field.is_repeated:
            found[field.name] = [plain(it) for it in value]
        else:
            found[field.name] = plain(value)
    return found


def seeds() -> list[bytes]:
    asked = (
        rls_messages.request({"plan": "free"}),
        rls_messages.request({"plan": "free"}, {"remote_address": "::1"}, hits=2, each=(0, 2**40)),
        rls_messages.request({"charge": "true", "caller": "bob", "user": "é" * 40}),
    )
    unknown = b"\x9a\x06\x02ab\x9d\x06abcd\x99\x06abcdefgh\x98\x06\x01"
    data = [each.SerializeToString() for each in asked]
    return [*data, unknown + data[0] + data[1], data[2].replace(b"bob", b"\xff\xfeb")]


WORDS = (
    *(b"\x0a", b"\x12", b"\x1a", b"\x18", b"\x20", b"\x08", b"\x13", b"\x14"),
    *(b"\xff", b"\x80", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    *(b"caller", b"charge", b"true", b"remote_address", b"api", b"plan", b"free"),
)
TARGET = Target(check, seeds, words=WORDS, max_bytes=500)
