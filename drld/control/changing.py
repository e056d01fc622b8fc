"""Endpoints of the control API that change something, which the log tells."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

log = logging.getLogger("drld.control")


def changing(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that changes something: the log says who asked, and what came of it."""

    async def logged(request: Request) -> Response:
        outcome = "not finished"
        try:
            response = await endpoint(request)
            outcome = str(response.status_code)
        except HTTPException as error:
            outcome = str(error.status_code)
            raise
        finally:
            # Not `request.url`, which the client's Host may have a part in.
            path = request.scope["path"]
            log.info("%s %s by %s: %s", request.method, path, request.state.peer, outcome)
        return response

    return logged
