"""The paths of the control API that change limits, or suggest how to (docs/control-api.md)."""

from __future__ import annotations

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from drld.config.changes import Change
from drld.control.backend import Backend
from drld.control.changing import changing
from drld.control.json_response import JSONResponse
from drld.control.turns import Turns
from drld.estimate.traffic_profile import seconds_needed

DEFAULT_PART = 0.99
MIN_PART, MAX_PART = 0.5, 0.9999
"""Below, most seconds would be limited; above, hours of traffic would be needed."""


def limit_routes(backend: Backend, _: Turns) -> list[Route]:
    """Paths that add, set and remove limits of `backend`, and suggest their values."""

    async def change(request: Request, change: Change) -> Response:
        try:
            return JSONResponse(await backend.change_limits(change, request.state.peer))
        except KeyError:
            raise no_limit(change.limit) from None

    async def add(request: Request) -> Response:
        tables, save = _body(await request.body(), "limits", list)
        return await change(request, Change("add", tables, save=save))

    async def set_keys(request: Request) -> Response:
        keys, save = _body(await request.body(), "set", dict)
        return await change(request, Change("set", [keys], request.path_params["name"], save))

    async def remove(request: Request) -> Response:
        _, save = _body(await request.body(), None, object)
        return await change(request, Change("remove", (), request.path_params["name"], save))

    async def suggestion(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            part = float(request.query_params.get("part", DEFAULT_PART))
        except ValueError:
            part = 0.0
        if not MIN_PART <= part <= MAX_PART:
            raise HTTPException(422, f"part: must be a number from {MIN_PART} to {MAX_PART}")
        try:
            found = backend.suggest(name, part)
        except KeyError:
            raise no_limit(name) from None
        if found is None:
            raise HTTPException(
                409, f"limit {name} has a bucket for each key: what single keys need is not known"
            )
        if isinstance(found, int):
            needed = seconds_needed(part)
            counts = backend.limit(name)["mode"] != "enforce"
            raise HTTPException(
                409,
                f"too little was seen of limit {name} in mode shadow: a suggestion for "
                f"{part:.4g} of the seconds needs at least {needed} seconds with traffic, and "
                f"this limiter has seen {found}; "
                + ("ask again later" if counts else f"to begin: drlctl limit shadow {name}"),
            )
        return JSONResponse(found)

    return [
        Route("/v1/limits/{name}/suggestion", suggestion),
        Route("/v1/limits", changing(add), methods=["POST"]),
        Route("/v1/limits/{name}/set", changing(set_keys), methods=["POST"]),
        Route("/v1/limits/{name}/remove", changing(remove), methods=["POST"]),
    ]


def no_limit(name: str) -> HTTPException:
    """The answer to a request about a limit that does not exist."""
    return HTTPException(404, f"no limit is named {name!r}")


def _body(data: bytes, key: str | None, kind: type) -> tuple[Any, bool]:
    """The value of a request under its key, and whether to save it.

    Raises:
        HTTPException: the body has another form.
    """
    try:
        body = json.loads(data)
        value, save = body.pop(key) if key else None, body.pop("save", False)
        sound = isinstance(value, kind) and value not in ([], {}) and isinstance(save, bool)
        if sound and not body:
            return value, save
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    forms = {"limits": '{"limits": [{...}], "save": false}', "set": '{"set": {...}, "save": false}'}
    form = forms.get(key or "", '{"save": false}')
    raise HTTPException(422, f"the body must be {form}; save may be left out")
