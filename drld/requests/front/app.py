"""The question whether a request may pass, over HTTP (docs/requests.md)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from drld.control.app import application
from drld.errors import InputError
from drld.requests import answer, question
from drld.requests.caller import caller_of
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Answer
from drld.requests.spec import Network

PATH = "/v1/check"
Clock = Callable[[], int]
Trusted = Callable[[], Sequence[Network]]
_HEADERS = {"cache-control": "no-store"}


def make_app(
    datapath: RequestDatapath, clock: Clock = time.monotonic_ns, trusted: Trusted = tuple
) -> ASGIApp:
    """Return the application of the front.

    Args:
        datapath: decides.
        clock: the clock of the daemon's ticks, ns.
        trusted: the networks of trusted proxies.
    """

    def caller(request: HttpRequest) -> str:
        forwarded = request.headers.getlist("x-forwarded-for")
        return caller_of(request.state.peer, forwarded, trusted())

    async def check(request: HttpRequest) -> Response:
        try:
            asked, refusal = question.of_query(request.scope["query_string"], caller(request))
        except InputError as error:
            raise HTTPException(422, str(error)) from None
        return _answered(datapath.decide(asked, clock()), refusal)

    return application([Route(PATH, check), json_route(lambda: datapath, caller, clock)])


def json_route(
    find: Callable[[], RequestDatapath | None],
    caller: Callable[[HttpRequest], str],
    clock: Clock = time.monotonic_ns,
) -> Route:
    """Return the path of questions in JSON, which is not found while `find` finds no datapath.

    `caller` returns the caller of a question that names none.
    """

    async def check(request: HttpRequest) -> Response:
        if (datapath := find()) is None:
            raise HTTPException(404, "requests.listen: is not set: no requests are limited here")
        try:
            asked, several = question.of_json(await request.body(), caller(request))
        except InputError as error:
            raise HTTPException(422, str(error)) from None
        decided = [datapath.decide(each, clock()) for each in asked]
        if several:
            return JSONResponse([answer.body(each) for each in decided], headers=_HEADERS)
        return _answered(decided[0], question.REFUSALS[0])

    return Route(PATH, check, methods=["POST"])


def _answered(decided: Answer, refusal: int) -> Response:
    """Return the answer to one question; `refusal` is the status of a no."""
    status = 200 if decided.admitted else refusal
    headers = {**_HEADERS, **answer.fields(decided)}
    return JSONResponse(answer.body(decided), status, headers)
