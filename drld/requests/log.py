"""Logs of requests: JSON lines, or access logs of web servers. Pure.

A JSON line is a question in the form of `POST /v1/check`, with the time `t` of the request:

    {"t": 1793456789.123, "namespace": "api", "descriptor": {"user": "alice"}, "cost": 3}

`t` is Unix time in seconds, or a text of ISO 8601 with an offset, such as nginx's `$time_iso8601`.

An access log is in the common or combined format of nginx and Apache. Its requests have the pairs
`method`, `path` (without a query) and, if the log has it, `user`. The caller is the client's
address, and the size is that of the answer. Pairs that exceed the room of a descriptor are left
out. Times are whole seconds there, so requests of a second come at once, and bursts look larger.

Words such as `namespace=api plan=free` are defaults for all requests.
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import IO, Any

from drld.errors import InputError
from drld.model import NS_PER_S
from drld.requests import descriptor
from drld.requests.caller import MAX_CALLER_BYTES
from drld.requests.model import Request
from drld.requests.question import MAX_AMOUNT, of_json

MAX_LINE = 65_536
"""The most bytes of a line: a longer line is damage."""
NAMESPACE = "default"
"""The namespace of requests of an access log, if no word names one."""
_MAX_DIGITS = 20
"""The most digits of a size that are read: more than the largest has."""
_NO_LOG = "must be a log of requests (JSON lines or an access log)"
_ACCESS = re.compile(r'(\S+) \S+ (\S+) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" \d{3} (\d+|-)(?: .*)?')
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_COMMON = re.compile(r"(\d{2})/(\w{3})/(\d{4}):(\d{2}):(\d{2}):(\d{2}) ([+-])(\d{2})(\d{2})", re.A)
_ISO = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?"
    r"(?:Z|([+-])(\d{2}):?(\d{2}))",
    re.ASCII,
)
_MOST_S = 1 << 33
"""The latest time, as for captures of packets (the year 2242)."""


def words_of(text: str) -> dict[str, str]:
    """Return the pairs of words such as `namespace=api plan=free`.

    Raises:
        InputError: a word is not NAME=VALUE, or a name comes twice.
    """
    found = dict[str, str]()
    for word in text.split():
        name, equals, value = word.partition("=")
        if not equals or not name or name in found:
            raise InputError(f"{word}: must be NAME=VALUE, with each name once")
        found[name] = value
    return found


def requests(stream: IO[bytes], words: str) -> Iterator[tuple[int, Request]]:
    """Return the requests of a log, each with its Unix time, ns.

    Raises:
        InputError: the file is no log of requests; while it is read: a line is no request.
    """
    given = words_of(words)
    lines = _lines(stream)
    for number, line in lines:
        # The first line says whether it is a log at all; the rest is read as asked for.
        if not line.startswith(b"{") and _ACCESS.fullmatch(line.decode("latin-1")) is None:
            raise InputError(_NO_LOG)
        first = _request(number, line, given)
        return chain([first], (_request(*it, given) for it in lines))
    raise InputError(_NO_LOG)


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise InputError(f"line {number}: must have {MAX_LINE} bytes at most")
        if line.strip():
            yield number, line.strip()


def _request(number: int, line: bytes, words: Mapping[str, str]) -> tuple[int, Request]:
    try:
        return _of_json(line, words) if line.startswith(b"{") else _of_access(line, words)
    except InputError as error:
        raise InputError(f"line {number}: {error}") from None


def _of_json(line: bytes, words: Mapping[str, str]) -> tuple[int, Request]:
    try:
        # nginx writes bytes of its clients as they are.
        value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise InputError("must be a JSON object") from None
    if not isinstance(value, dict) or "t" not in value:
        raise InputError("must have the time t, in seconds or as a text of ISO 8601")
    time_ns = _time_ns(value.pop("t"))
    pairs = {name: it for name, it in words.items() if name not in descriptor.RESERVED}
    asked = {name: _number(name, it) for name, it in words.items() if name not in pairs} | value
    own = asked.get("descriptor", {})
    asked["descriptor"] = {**pairs, **own} if isinstance(own, dict) else own
    if type(size := asked.get("bytes")) is int and size >= 0:
        del asked["bytes"]
        asked |= _size(size)
    (request,), _ = of_json(json.dumps(asked).encode(), "-")
    return time_ns, request


def _number(name: str, value: str) -> Any:
    """Return the value of a word in the type that JSON has for it."""
    return int(value) if name in {"cost", "bytes", "at_least"} and value.isdigit() else value


def _of_access(line: bytes, words: Mapping[str, str]) -> tuple[int, Request]:
    match = _ACCESS.fullmatch(line.decode("utf-8", "backslashreplace"))
    if match is None:
        raise InputError(_NO_LOG)
    host, user, at, asked, size = match.groups()
    time_ns = _common_ns(at)
    method, _, rest = asked.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    pairs = {name: it for name, it in words.items() if name not in descriptor.RESERVED}
    own = {"method": method, "user": "" if user == "-" else user, "path": path}
    for name, value in own.items():
        if value and name not in pairs:
            try:
                pairs = dict(descriptor.check({**pairs, name: value}))
            except InputError:
                continue
    question: dict[str, Any] = {
        "namespace": NAMESPACE,
        "caller": host.encode()[:MAX_CALLER_BYTES].decode(errors="ignore"),
        **({} if size == "-" else _size(int(size[:_MAX_DIGITS]))),
        **{it: _number(it, words[it]) for it in words.keys() & set(descriptor.RESERVED)},
        "descriptor": pairs,
    }
    (request,), _ = of_json(json.dumps(question).encode(), "-")
    return time_ns, request


def _size(number: int) -> dict[str, int]:
    """Return the size of a request by that of its answer, which has no byte if the client went
    before."""
    return {"bytes": min(number, MAX_AMOUNT)} if number else {}


def _time_ns(value: object) -> int:
    """Return the Unix time, ns, of a number of seconds or a text of ISO 8601."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_S:
        return round(value * NS_PER_S)
    match = _ISO.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InputError("t: must be seconds since 1970, or such as 2026-01-31T23:59:59.5Z")
    *parts, fraction, sign, hours, minutes = match.groups()
    year, month, *rest = map(int, parts)
    seconds = _seconds((year, month, *rest), sign, hours, minutes)
    return seconds * NS_PER_S + int((fraction or "0").ljust(9, "0"))


def _common_ns(text: str) -> int:
    match = _COMMON.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        raise InputError(f"{text}: must be a time such as 31/Jan/2026:23:59:59 +0000")
    day, month, year, *clock = match.groups()[:6]
    date = (int(year), _MONTHS.index(month) + 1, int(day), *map(int, clock))
    return _seconds(date, *match.groups()[6:]) * NS_PER_S


def _seconds(
    date: tuple[int, ...], sign: str | None, hours: str | None, minutes: str | None
) -> int:
    """Return the Unix time, s, of a date and its offset from UTC."""
    _, month, day, *clock = date
    if not (1 <= month <= 12 and 1 <= day <= 31 and clock[0] < 24 and max(clock[1:]) <= 60):
        raise InputError("a date must be one")
    offset = int(hours or 0) * 3600 + int(minutes or 0) * 60
    seconds = timegm(date) + (offset if sign == "-" else -offset)
    if not 0 <= seconds < _MOST_S:
        raise InputError("a time must be after 1970")
    return seconds
