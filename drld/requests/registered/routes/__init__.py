"""The paths of the control API about requests: questions in JSON, and the busiest keys of a limit.

There are none in a query here: a page of a stranger's, in an operator's browser, could send those.
"""

from __future__ import annotations

import time
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from drld.control.backend import Backend
from drld.control.limits import no_limit
from drld.control.turns import Turns
from drld.requests.busy_keys import MOST, busy_report
from drld.requests.datapath import RequestDatapath
from drld.requests.front.app import json_route


def routes(backend: Backend, _: Turns) -> list[Route]:
    """Return the paths on the control socket."""

    async def keys(request: Request) -> Response:
        name, asked = request.path_params["name"], request.query_params.get("count", "20")
        count = int(asked) if asked.isascii() and asked.isdigit() and len(asked) <= 4 else 0
        if not 1 <= count <= MOST:
            raise HTTPException(422, f"count: must be a number from 1 to {MOST}")
        try:
            backend.limit(name)
        except KeyError:
            raise no_limit(name) from None
        datapath = backend.datapath_of(RequestDatapath)
        its = datapath.keyed.limits.values() if datapath else ()
        for keyed in its:
            if datapath and keyed.limit.name == name:
                contacts = datapath.keyed.contacts
                return JSONResponse(busy_report(keyed, count, contacts, time.monotonic_ns()))
        raise HTTPException(404, f"limit {name} has no keys: it has no match.per")

    return [
        Route("/v1/limits/{name}/keys", keys),
        json_route(
            partial(backend.datapath_of, RequestDatapath),
            lambda request: f"uid {request.state.peer.uid}",
        ),
    ]
