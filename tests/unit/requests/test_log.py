"""Logs of requests: JSON lines, and access logs as nginx and Apache write them."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.client.protocol.long_value import shortened
from drld.errors import InputError
from drld.model import NS_PER_S
from drld.requests.log import MAX_LINE, requests
from drld.requests.model import Request

ACCESS = (
    '192.0.2.7 - alice [31/Jan/2026:23:59:59 +0100] "GET /a/b?q=1 HTTP/1.1" 200 512 "-" "curl"\n'
)
AT_NS = int(datetime(2026, 1, 31, 22, 59, 59, tzinfo=timezone.utc).timestamp()) * NS_PER_S


def read(text: str | bytes, words: str = "") -> list[tuple[int, Request]]:
    data = text.encode() if isinstance(text, str) else text
    return list(requests(io.BytesIO(data), words))


def test_an_access_log_is_read() -> None:
    pairs = {"method": "GET", "user": "alice", "path": "/a/b"}
    asked = Request("default", pairs, 1, 512, "192.0.2.7")
    assert read(ACCESS) == [(AT_NS, asked)]
    own = read(ACCESS, "namespace=web plan=free user=bob cost=2 bytes=9")
    pairs = {"plan": "free", "user": "bob", "method": "GET", "path": "/a/b"}
    assert own == [(AT_NS, Request("web", pairs, 2, 9, "192.0.2.7"))]


LONG = shortened("/" + "x" * 300)


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        # What is no request of HTTP at all, and a path that is replaced by its digest.
        (ACCESS.replace("GET /a/b?q=1 HTTP/1.1", r"\x16\x03\x01"), {"method": r"\x16\x03\x01"}),
        (ACCESS.replace("GET /a/b?q=1 HTTP/1.1", ""), {}),
        (ACCESS.replace("/a/b", "/" + "x" * 300), {"method": "GET", "path": LONG}),
        (ACCESS.replace('"GET /a/b', r'"GET /a\"b'), {"method": "GET", "path": r"/a\"b"}),
    ],
)
def test_odd_requests_of_strangers_do_not_damage_the_log(line: str, pairs: dict[str, str]) -> None:
    ((_, request),) = read(line.replace("alice", "-").replace(" 512 ", " - "))
    assert (dict(request.descriptor), request.size) == (pairs, None)


def test_json_lines_name_all_of_a_request() -> None:
    line = {"t": 1.5, "namespace": "api", "descriptor": {"user": "alice"}, "at_least": 1, "cost": 2}
    assert read(json.dumps(line) + "\n\n" + ACCESS, "plan=free caller=bob")[0] == (
        1_500_000_000,
        Request("api", {"plan": "free", "user": "alice"}, 2, caller="bob", at_least=1),
    )


@pytest.mark.parametrize(
    ("answered", "size"), [(0, None), (1_500_000_000, 1_500_000_000), (3 << 30, 2**31 - 1)]
)
def test_answers_without_a_byte_and_large_ones_do_not_end_the_log(
    answered: int, size: int | None
) -> None:
    """A client has gone before its answer; the format is that of docs/requests.md."""
    line = json.dumps({"t": 1, "namespace": "api", "bytes": answered})
    for text in (line, ACCESS.replace(" 512 ", f" {answered} ")):
        ((_, request),) = read(text)
        assert request.size == size


def test_bytes_of_a_client_that_are_no_text_do_not_end_the_log() -> None:
    line = json.dumps({"t": 1, "namespace": "api", "descriptor": {"user": "?"}}).encode()
    ((_, request),) = read(line.replace(b"?", b"\xff\xfe"))
    assert request.descriptor == {"user": "\ufffd\ufffd"}


@pytest.mark.parametrize("written", ["2026-01-31T22:59:59Z", "2026-01-31 23:59:59,000+0100"])
def test_times_of_iso_8601_are_read(written: str) -> None:
    assert read(json.dumps({"t": written, "namespace": "api"}))[0][0] == AT_NS


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
def test_times_are_those_of_the_calendar(at: datetime) -> None:
    at = at.replace(tzinfo=timezone.utc)
    ((read_ns, _),) = read(json.dumps({"t": at.isoformat(), "namespace": "api"}))
    since = at - datetime(1970, 1, 1, tzinfo=timezone.utc)
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    assert read_ns == microseconds * 1000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must be a log of requests"),
        ("\n\n", "must be a log of requests"),
        ("nothing\n", r"must be a log of requests \(JSON lines or an access log\)"),
        (b"\xd4\xc3\xb2\xa1\0\0", "must be a log of requests"),
        ("{}", "line 1: must have the time t"),
        ("{", "line 1: must be a JSON object"),
        ('{"t": 1}', "line 1: namespace: is required"),
        ('{"t": -1, "namespace": "a"}', "line 1: t: must be seconds since 1970"),
        ('{"t": 1e20, "namespace": "a"}', "line 1: t: must be"),
        ('{"t": true, "namespace": "a"}', "line 1: t: must be"),
        ('{"t": "2026-13-01T00:00:00Z", "namespace": "a"}', "line 1: a date must be one"),
        ('{"t": "1969-12-31T00:00:00Z", "namespace": "a"}', "line 1: a time must be after 1970"),
        ('{"t": 1, "namespace": "a", "user": "b"}', "line 1: user: unknown key"),
        (ACCESS + "nothing\n", "line 2: must be a log of requests"),
        (ACCESS.replace("Jan", "Foo"), "line 1: 31/Foo/2026:23:59:59 .0100: must be a time"),
        (ACCESS.replace("31/Jan", "41/Jan"), "line 1: a date must be one"),
        (ACCESS + "x" * (MAX_LINE + 1), f"line 2: must have {MAX_LINE} bytes at most"),
    ],
)
def test_a_text_that_is_no_log_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read(text)


@pytest.mark.parametrize("words", ["plan", "=x", "plan=a plan=b", "cost=x", "charge=maybe"])
def test_words_that_say_nothing(words: str) -> None:
    with pytest.raises(InputError, match="must be"):
        read(ACCESS, words)
