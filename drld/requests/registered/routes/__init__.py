"""The path of the control API about requests: questions in JSON, for `drlctl check`.

There are none in a query here: a page of a stranger's, in an operator's browser, could send those.
"""

from __future__ import annotations

from functools import partial

from starlette.routing import Route

from drld.control.backend import Backend
from drld.control.turns import Turns
from drld.requests.datapath import RequestDatapath
from drld.requests.front.app import json_route


def routes(backend: Backend, _: Turns) -> list[Route]:
    """The path of the question, on the control socket."""
    return [
        json_route(
            partial(backend.datapath_of, RequestDatapath),
            lambda request: f"uid {request.state.peer.uid}",
        )
    ]
