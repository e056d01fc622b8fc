"""The control API as an ASGI application (docs/control-api.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from itertools import islice

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from drld.control.backend import Backend
from drld.errors import ConfigError, DrldError

MAX_BODY_BYTES = 4096
"""No request of this API needs a body; what clients send out of habit fits."""
_BATCH = 100
"""Objects of a listing that are encoded before other tasks get their turn."""


def make_app(backend: Backend) -> ASGIApp:
    """The application that answers for `backend`."""
    one_reload = trio.Lock()

    async def status(_: Request) -> Response:
        return JSONResponse(backend.status())

    async def limit(request: Request) -> Response:
        name = request.path_params["name"]
        for index, report in enumerate(backend.limits()):
            if report["name"] == name:
                return JSONResponse(report)
            if index % _BATCH == _BATCH - 1:
                await trio.lowlevel.checkpoint()
        raise _no_limit(name)

    async def reload(_: Request) -> Response:
        async with one_reload:
            try:
                await backend.reload()
            except ConfigError as error:
                return JSONResponse({"problems": error.problems}, 422)
            except DrldError as error:
                return JSONResponse({"error": str(error)}, 500)
        return JSONResponse(backend.status()["config"])

    app = Starlette(
        routes=[
            Route("/v1/status", status),
            Route("/v1/limits", _Listing(backend.limits), methods=["GET"]),
            Route("/v1/limits/{name}", limit),
            Route("/v1/limits/{name}/trace", _Trace(backend), methods=["GET"]),
            Route("/v1/peers", _Listing(backend.peers), methods=["GET"]),
            Route("/v1/reload", reload, methods=["POST"]),
        ],
        middleware=[Middleware(_BodyLimit)],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failed(_: Request, _error: Exception) -> Response:
    # What happened goes to the log, which hypercorn writes; it is a bug.
    return JSONResponse({"error": "internal error"}, 500)


def _no_limit(name: str) -> HTTPException:
    return HTTPException(404, f"no limit is named {name!r}")


def _encode(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


async def _start(send: Send, media_type: bytes) -> None:
    headers = [(b"content-type", media_type)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _body(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


class _BodyLimit:
    """Refuses requests with a large body, or one of unknown length, before anything reads it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            length = headers.get(b"content-length", b"0")
            if b"transfer-encoding" in headers or not _is_small(length):
                error = f"the body of a request is limited to {MAX_BODY_BYTES} bytes"
                app = JSONResponse({"error": error}, 413, {"connection": "close"})
        await app(scope, receive, send)


def _is_small(length: bytes) -> bool:
    return len(length) <= 5 and length.isdigit() and int(length) <= MAX_BODY_BYTES


class _Listing:
    """A JSON array, encoded and sent in batches: ten thousand limits are no reason to stall."""

    def __init__(self, items: Callable[[], Iterable[object]]) -> None:
        self._items = items

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        items = iter(self._items())
        batch = list(islice(items, _BATCH))
        await _start(send, b"application/json")
        separator = b"["
        while batch:
            await _body(send, separator + _encode(batch)[1:-1], more=True)
            separator = b","
            batch = list(islice(items, _BATCH))
        await _body(send, b"[]" if separator == b"[" else b"]", more=False)


class _Trace:
    """The records of one limit as they are made, one JSON object a line."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path_params"]["name"]
        async with AsyncExitStack() as stack:
            try:
                records = await stack.enter_async_context(self._backend.trace(name))
            except KeyError:
                raise _no_limit(name) from None
            await _start(send, b"application/x-ndjson")
            if scope["method"] == "GET":
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_cancel_on_disconnect, receive, nursery.cancel_scope)
                    async for record in records:
                        await _body(send, _encode(record) + b"\n", more=True)
                    nursery.cancel_scope.cancel()
            await _body(send, b"", more=False)


async def _cancel_on_disconnect(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
