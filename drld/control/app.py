"""The control API as an ASGI application (docs/control-api.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from drld.control.backend import Backend
from drld.control.changing import changing
from drld.control.json_response import JSONResponse
from drld.control.keys import key_routes
from drld.control.limits import limit_routes, no_limit
from drld.control.metrics import metrics_routes
from drld.control.page import page_routes
from drld.control.pieces import begin, proceed
from drld.control.ranking import Selection
from drld.control.turns import Turns
from drld.errors import InputError
from drld.planes import registered

_BATCH = 100
_BATCH_BYTES = 1 << 16
_BATCH_S = 0.002
"""Most of a listing that is made before other tasks get their turn: objects, bytes, or time.

One object may take long: a peer has links of all limits, a limit the names of all peers.
"""


def _routes(backend: Backend, turns: Turns) -> list[Route]:
    """Paths about the daemon, its limits and its peers."""

    async def status(_: Request) -> Response:
        return JSONResponse(backend.status())

    async def limit(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            return JSONResponse(backend.limit(name))
        except KeyError:
            raise no_limit(name) from None

    async def explain(request: Request) -> ASGIApp:
        try:
            rows = backend.explainer(misses=True)(request.query_params.get("item", ""))
        except InputError as error:
            raise HTTPException(422, str(error)) from None
        return _Listing(lambda: rows, turns)

    async def explain_many(request: Request) -> ASGIApp:
        items = _items(await request.body())
        explained = backend.explainer(misses=False)

        def rows() -> Iterator[object]:
            for item in items:
                try:
                    yield [*explained(item)]
                except InputError as error:
                    yield {"error": str(error)}

        return _Listing(rows, turns)

    async def reload(request: Request) -> Response:
        await backend.reload(request.state.peer)
        return JSONResponse(backend.status()["config"])

    return [
        Route("/v1/status", status),
        Route("/v1/config", _Listing(backend.config, turns), methods=["GET"]),
        Route("/v1/explain", explain),
        Route("/v1/explain", explain_many, methods=["POST"]),
        Route("/v1/limits", _Limits(backend, turns), methods=["GET"]),
        Route("/v1/limits/{name}", limit),
        Route("/v1/limits/{name}/trace", _Trace(backend, turns), methods=["GET"]),
        Route("/v1/history", _Listing(backend.history, turns), methods=["GET"]),
        Route("/v1/peers", _Listing(backend.peers, turns), methods=["GET"]),
        Route("/v1/reload", changing(reload), methods=["POST"]),
    ]


def _items(data: bytes) -> list[str]:
    """The items of a body.

    Raises:
        HTTPException: the body has another form.
    """
    try:
        items = json.loads(data)["items"]
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return items
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise HTTPException(422, 'the body must be {"items": ["..."]}')


Maker = Callable[[Backend, Turns], list[Route]]

_OWN: tuple[Maker, ...] = (_routes, limit_routes, key_routes, metrics_routes, page_routes)
PUBLIC: tuple[Maker, ...] = (metrics_routes,)
"""The application for other hosts, on the addresses of `[http]`; with `page_routes`, if asked."""


def make_app(backend: Backend, turns: Turns) -> ASGIApp:
    """The application that answers for `backend`; it shares `turns` with other servers."""
    makers = (*_OWN, *(plane.routes for plane in registered("routes")))
    return application([route for routes in makers for route in routes(backend, turns)])


def make_public_app(backend: Backend, turns: Turns, public: Sequence[Maker] = PUBLIC) -> ASGIApp:
    """The application for other hosts: it reads `backend`, and changes nothing.

    Raises:
        ValueError: a route has a method that may change something.
    """
    makers = (*public, *(plane.routes for plane in registered("public_routes")))
    routes = [route for routes in makers for route in routes(backend, turns)]
    for route in routes:
        if (route.methods or {"any"}) - {"GET", "HEAD"}:
            raise ValueError(f"{route.path}: is not for other hosts: it takes {route.methods}")
    return application(routes)


def application(routes: list[Route]) -> ASGIApp:
    """An application with these paths, whose errors are JSON too."""
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failed(_: Request, _error: Exception) -> Response:
    # This is a bug. The server writes it to the log.
    return JSONResponse({"error": "internal error"}, 500)


def _encode(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


class _Listing:
    """A JSON array, encoded and sent in batches: ten thousand limits are no reason to stall."""

    def __init__(self, items: Callable[[], Iterable[object]], turns: Turns) -> None:
        self._items = items
        self._turns = turns

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        items = iter(self._items())
        await begin(send, b"application/json")
        separator = b"["
        while batch := _batch(items):
            await proceed(send, separator + b",".join(batch), more=True)
            separator = b","
            await self._turns.wait()
        await proceed(send, b"[]" if separator == b"[" else b"]", more=False)


def _batch(items: Iterator[object]) -> list[bytes]:
    """The next objects, encoded; none at the end, and only there."""
    batch: list[bytes] = []
    size = 0
    until = trio.current_time() + _BATCH_S
    for item in items:
        batch.append(_encode(item))
        size += len(batch[-1])
        # Asked after an object, so that a host that stands still never makes a batch empty.
        if len(batch) == _BATCH or size >= _BATCH_BYTES or trio.current_time() >= until:
            break
    return batch


class _Limits:
    """All limits, or those that the query selects (`Selection`)."""

    def __init__(self, backend: Backend, turns: Turns) -> None:
        self._backend = backend
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ids = None
        if scope["query_string"]:
            try:
                selection = Selection.read(scope["query_string"])
            except ValueError as error:
                raise HTTPException(422, str(error)) from None
            ids, _ = await selection.ids(self._backend.ranks(selection.sort), self._turns)
        await _Listing(partial(self._backend.limits, ids), self._turns)(scope, receive, send)


class _Trace:
    """The records of one limit as they are made, one JSON object a line."""

    def __init__(self, backend: Backend, turns: Turns) -> None:
        self._backend = backend
        self._turns = turns

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        name = scope["path_params"]["name"]
        async with AsyncExitStack() as stack:
            try:
                records = await stack.enter_async_context(self._backend.trace(name))
            except KeyError:
                raise no_limit(name) from None
            await begin(send, b"application/x-ndjson")
            if scope["method"] == "GET":
                async for record in records:
                    await self._turns.wait()
                    await proceed(send, _encode(record) + b"\n", more=True)
            await proceed(send, b"", more=False)
