"""The path of the plane of calls."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from drld.control.backend import Backend
from drld.control.turns import Turns


def routes(backend: Backend, turns: Turns) -> list[Route]:
    async def calls(_: Request) -> Response:
        return JSONResponse([])

    return [Route("/v1/calls", calls)]
