"""The paths of the control API that show and change the keys in force (docs/security.md)."""

from __future__ import annotations

import json
from collections.abc import Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from drld.control.backend import Backend
from drld.control.changing import changing
from drld.control.json_response import JSONResponse
from drld.control.turns import Turns
from drld.errors import ConfigError
from drld.gossip.wire.keyring import KeyRing, parse_key


def key_routes(backend: Backend, _: Turns) -> list[Route]:
    """Paths about the keys of `backend`."""

    async def keys(_: Request) -> Response:
        return JSONResponse(backend.keys())

    def change_keys(change: Callable[[KeyRing], KeyRing]) -> Response:
        try:
            backend.change_keys(change)
        except ConfigError as error:
            raise HTTPException(409, "; ".join(error.problems)) from None
        return JSONResponse(backend.keys())

    async def install_key(request: Request) -> Response:
        key = _key(await request.body())
        return change_keys(lambda ring: ring.install(request.path_params["id"], key))

    async def use_key(request: Request) -> Response:
        return change_keys(lambda ring: ring.using(request.path_params["id"]))

    async def remove_key(request: Request) -> Response:
        return change_keys(lambda ring: ring.remove(request.path_params["id"]))

    return [
        Route("/v1/keys", keys),
        Route("/v1/keys/{id:int}/install", changing(install_key), methods=["POST"]),
        Route("/v1/keys/{id:int}/use", changing(use_key), methods=["POST"]),
        Route("/v1/keys/{id:int}/remove", changing(remove_key), methods=["POST"]),
    ]


def _key(body: bytes) -> bytes:
    """The key in a request; what is wrong with one is said without showing it."""
    try:
        return parse_key(json.loads(body)["key"].encode())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise HTTPException(422, 'the body is {"key": "..."}, with a key as in a file') from None
