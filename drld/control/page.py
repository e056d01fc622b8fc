"""The page: its files, and the figures that it asks for.

The page asks once a second (`GET /v1/live`) and remembers some minutes itself. So the daemon keeps
nothing for a reader, and does nothing for a page that is not open. A slow reader asks less often. A
long answer is made in pieces, each after its turn.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from drld.control.backend import Backend
from drld.control.pieces import begin, proceed
from drld.control.ranking import Selection
from drld.control.turns import Turns
from drld.planes import registered

FOLDER = Path(__file__).with_name("page")
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    # A daemon that was upgraded has another page.
    "cache-control": "no-cache",
}
"""Content policy: only the page's own files run or load, whatever a name contains."""
MOST_LIMITS = 50
"""Limits in an answer, and on a page."""
LIMITS = 12
"""Limits in an answer to a page that does not say how many."""
_MOST_CHARACTERS = 200
"""Longest text of a search: longer than any name."""


def page_routes(backend: Backend, turns: Turns) -> list[Route]:
    """Paths of the page, and of what it shows."""
    names = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}

    def file(name: str) -> Response:
        if (path := names.get(name)) is None:
            raise HTTPException(404)
        # Small, and in the kernel's cache: not worth a thread, nor the memory of a copy.
        return Response(path.read_bytes(), headers=HEADERS, media_type=TYPES[path.suffix])

    async def index(_: Request) -> Response:
        return file("index.html")

    async def part(request: Request) -> Response:
        return file(request.path_params["name"])

    async def panels(_: Request) -> Response:
        return JSONResponse([_panels(plane.PANELS) for plane in registered("panels")])

    return [
        Route("/", index),
        Route("/page/{name}", part),
        Route("/v1/panels", panels),
        Route("/v1/live", _Live(backend, turns), methods=["GET"]),
    ]


def _panels(of: object) -> object:
    """Named tuples as JSON objects."""
    if isinstance(of, tuple):
        fields = getattr(of, "_fields", None)
        parts = [_panels(part) for part in of]
        return parts if fields is None else dict(zip(fields, parts, strict=True))
    return of


class _Live:
    """The application that answers GET /v1/live."""

    def __init__(self, backend: Backend, turns: Turns) -> None:
        self._backend = backend
        self._turns = turns

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        query = Request(scope).query_params
        find = query.get("find", "")[:_MOST_CHARACTERS].lower()
        most = min(max(_number(query.get("most"), LIMITS), 1), MOST_LIMITS)
        backend = self._backend
        busiest = Selection("pressure", find, count=most)
        ids, matching = await busiest.ids(backend.ranks(busiest.sort), self._turns)
        if shown := query.get("show"):
            with suppress(KeyError):
                ids.append(backend.limit(shown)["id"])
                backend.look(ids[-1])
        head = {
            "t": time.time(),
            "status": backend.status(),
            "matching": matching,
            "peers": backend.health(),
            "events": list(backend.events(_number(query.get("after"), 0))),
        }
        await begin(send, b"application/json")
        await proceed(send, _json(head)[:-1] + b',"limits":', more=True)
        await self._turns.wait()
        await proceed(send, _json(backend.live_limits(ids)) + b"}", more=False)


def _json(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _number(text: str | None, default: int) -> int:
    """A number of the query.

    Raises:
        HTTPException: it is none.
    """
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise HTTPException(422, f"{text[:_MOST_CHARACTERS]!r}: must be a number")
    return int(text)
