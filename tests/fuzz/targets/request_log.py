"""Logs of requests, and requests in words: whatever is in them, they are read or refused.

Every request that is read is within the bounds of a question, and its text is read as the same.
"""

from __future__ import annotations

import io

from drld.errors import InputError
from drld.requests.log import requests
from drld.requests.registered import explain
from tests.fuzz.targets.base import Target
from tests.fuzz.targets.requests import check_request


def check(data: bytes) -> bool:
    """The first line is words; all of it, and what is behind that line, may be a log."""
    first, _, rest = data.partition(b"\n")
    words = first.decode("utf-8", "replace")
    accepted = read(data, "") + read(rest, words)
    try:
        asked = explain.read(words)
    except InputError:
        return accepted > 0
    check_text(asked)
    return True


def read(data: bytes, words: str) -> int:
    """How many requests of a log could be read."""
    count = 0
    try:
        for time_ns, request in requests(io.BytesIO(data), words):
            count += 1
            assert 0 <= time_ns < 1 << 63
            check_request(request)
        for _, asked, text in explain.captured(io.BytesIO(data), words):
            assert explain.read(text).request == asked.request
            check_text(asked)
    except InputError:
        pass
    return count


def check_text(asked: explain.Asked) -> None:
    """A request written for people is read back as the same."""
    assert explain.read(str(asked)).request == asked.request


def seeds() -> list[bytes]:
    access = b'::1 - bob [31/Jan/2026:23:59:59 +0100] "GET /a?b HTTP/1.1" 200 512 "-" "curl"\n'
    line = b'{"t": 1.5, "namespace": "api", "descriptor": {"user": "a b"}, "cost": 3}\n'
    return [
        access,
        line,
        b"namespace=api plan=free cost=2\n" + access + line,
        b"namespace=api&user=a%20b&charge=true&bytes=9\n",
        b'x=y\n{"t": "2026-01-31T22:59:59.5Z", "namespace": "web", "at_least": 1}\n',
    ]


WORDS = (
    *(b"namespace", b"descriptor", b"cost", b"bytes", b"caller", b"at_least", b"charge", b'"t"'),
    *(b"true", b"\\ud800", b"%ff", b"%20", b"=", b"&", b" ", b"\n", b'"', b"[", b"]", b"{", b"}"),
)

TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
