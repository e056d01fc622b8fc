"""Endpoints of the control API that change something, which the log tells."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from drld.control.json_response import JSONResponse
from drld.errors import ConfigError, DrldError
from drld.log_event import event

log = logging.getLogger("drld.control")

MAX_PROBLEMS = 100
"""Most mistakes of a configuration in one answer: a longer list does not help."""


def changing(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that changes something: the log names the client and the outcome.

    A refusal is answered with `{"problems": [...]}` for mistakes, else with `{"error": "..."}`.
    """

    async def logged(request: Request) -> Response:
        outcome = "not finished"
        try:
            response = await _answer(endpoint, request)
            outcome = str(response.status_code)
        except HTTPException as error:
            outcome = str(error.status_code)
            raise
        finally:
            # Not `request.url`, which the client's Host may have a part in; and as it was sent, as
            # what it stands for may pretend to be a line of the log.
            path = request.scope["raw_path"].decode("latin-1")
            peer = request.state.peer
            log.info(
                "%s %s by %s: %s",
                *(request.method, path, peer, outcome),
                extra=event(
                    "control.request",
                    f"uid {peer.uid}",
                    **{"method": request.method, "path": path, "outcome": outcome},
                    **{"uid": peer.uid, "pid": peer.pid},
                ),
            )
        return response

    return logged


async def _answer(endpoint: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    try:
        return await endpoint(request)
    except ConfigError as error:
        left_out = len(error.problems) - MAX_PROBLEMS
        more = [f"and {left_out} more"] if left_out > 0 else []
        return JSONResponse({"problems": [*error.problems[:MAX_PROBLEMS], *more]}, 422)
    except DrldError as error:
        return JSONResponse({"error": str(error)}, 500)
