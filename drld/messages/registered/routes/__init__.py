"""The path of the control API about messages: the arrivals of a limit, for a profile."""

from __future__ import annotations

import json

import trio
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from drld.control.backend import Backend
from drld.control.limits import no_limit
from drld.control.pieces import begin, proceed
from drld.control.turns import Turns
from drld.messages.datapath import MessageDatapath

PERIOD_S = 0.25
"""The time between two lines of a stream."""


def routes(backend: Backend, turns: Turns) -> list[Route]:
    """The path on the control socket."""
    return [Route("/v1/limits/{name}/arrivals", _Arrivals(backend, turns), methods=["GET"])]


class _Arrivals:
    """Batches of arrivals of one limit, one JSON object a line, until the limit is removed."""

    def __init__(self, backend: Backend, turns: Turns) -> None:
        self._backend = backend
        self._turns = turns

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        name = scope["path_params"]["name"]
        try:
            limit_id = self._backend.limit(name)["id"]
        except KeyError:
            raise no_limit(name) from None
        datapath = self._backend.datapath_of(MessageDatapath)
        limits = datapath.limits if datapath is not None else ()
        found = next((it for it in limits if it.id == limit_id), None)
        if datapath is None or found is None:
            raise HTTPException(404, f"limit {name} is not about messages")
        if found.policy.keyed is not None:
            raise HTTPException(
                409,
                f"limit {name} has a bucket for each client: profile one without match.client",
            )
        recording = datapath.record(limit_id)
        if recording is None:
            raise HTTPException(409, f"limit {name} is being profiled already")
        try:
            await begin(send, b"application/x-ndjson")
            while scope["method"] == "GET" and datapath.records(limit_id, recording):
                await self._turns.wait()
                batch = {"arrivals_ns": recording.take(), "missed": recording.missed}
                await proceed(send, json.dumps(batch).encode() + b"\n", more=True)
                await trio.sleep(PERIOD_S)
            await proceed(send, b"", more=False)
        finally:
            datapath.stop_recording(limit_id, recording)
