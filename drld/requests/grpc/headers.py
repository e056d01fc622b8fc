"""The headers of a call, and the trailers of a call that fails. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from drld.requests.caller import Client
from drld.requests.grpc.call import Handler, Handlers, Origin, Status
from drld.requests.grpc.http2 import Headers

_MAX_TEXT = 200
"""The most characters of an error."""
_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_UNIT_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""The characters that stand for themselves in `grpc-message`."""


class CallHead(NamedTuple):
    """The content of a call's headers."""

    handler: Handler
    origin: Origin
    compressed: bool
    """Whether the messages are compressed."""
    timeout: float | None
    """The time that the client waits, s; None: the headers do not say."""
    refusal: Headers | None
    """The end of a call that is refused for its headers; None: it is not."""


def read_head(fields: Sequence[Any], handlers: Handlers, client: Client) -> CallHead:
    """Return the content of a call's headers.

    Args:
        fields: names and values, as `h2` reports them.
        handlers: the methods that there are.
        client: the client of the connection.
    """
    headers = dict(fields)
    forwarded = (value for name, value in fields if name == b"x-forwarded-for")
    handler = handlers.get(headers.get(b":path", b""))
    timeout = _timeout(headers.get(b"grpc-timeout"))
    refusal: Headers | None = None
    if headers.get(b":method") != b"POST":
        refusal = ((b":status", b"405"), (b"allow", b"POST"))
    elif not headers.get(b"content-type", b"").startswith(b"application/grpc"):
        refusal = ((b":status", b"415"),)
    elif handler is None:
        refusal = failure(Status.UNIMPLEMENTED, "there is no such method")
    elif timeout is None and b"grpc-timeout" in headers:
        text = "grpc-timeout: must be at most 8 digits and a unit"
        refusal = failure(Status.INTERNAL, text)
    return CallHead(
        handler or _NONE,
        Origin(client, tuple(value.decode("latin-1") for value in forwarded)),
        headers.get(b"grpc-encoding", b"identity") != b"identity",
        timeout,
        refusal,
    )


def failure(status: Status, text: str) -> Headers:
    """Return the trailers of a call that is not OK."""
    return (
        (b"grpc-status", b"%d" % status),
        (b"grpc-message", quote(text[:_MAX_TEXT], _PLAIN, errors="replace").encode()),
        (b"grpc-accept-encoding", b"identity"),
    )


def _timeout(value: bytes | None) -> float | None:
    """Return the time that a client waits, s; None: it is not given, or not in this form."""
    if value is None or (found := _TIMEOUT.fullmatch(value)) is None:
        return None
    return int(found[1]) * _UNIT_S[found[2]]


def _nothing(_: bytes, __: Origin) -> bytes:
    raise AssertionError("there is no such method")


_NONE = Handler(_nothing)
