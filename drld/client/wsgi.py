"""Middleware for WSGI: requests above a limit are answered with 429 before the application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

from drld.client.on_threads import Client
from drld.client.protocol.http_fields import caller_of, fields, refusal
from drld.client.protocol.model import NO_PAIRS, Question

Environ: TypeAlias = "dict[str, Any]"
App: TypeAlias = Callable[..., Iterable[bytes]]


def address(environ: Environ) -> str:
    """Return the client's address as the server sees it."""
    return caller_of(environ.get("REMOTE_ADDR", ""))


class RateLimitMiddleware:
    """Asks a limiter about each request."""

    def __init__(
        self,
        app: App,
        *,
        client: Client,
        namespace: str,
        descriptor: Callable[[Environ], Mapping[str, str] | None] = lambda _: NO_PAIRS,
        caller: Callable[[Environ], str] = address,
    ) -> None:
        """See `drld.client.asgi.RateLimitMiddleware`."""
        self._app = app
        self._client = client
        self._namespace = namespace
        self._descriptor = descriptor
        self._caller = caller

    def __call__(
        self, environ: Environ, start_response: Callable[..., Callable[[bytes], object]]
    ) -> Iterable[bytes]:
        """Answer a request above a limit; otherwise call the application."""
        if (pairs := self._descriptor(environ)) is None:
            return self._app(environ, start_response)
        question = Question(self._namespace, pairs, caller=self._caller(environ))
        (answer,) = self._client.ask([question])
        if not answer.admitted:
            status, named, body = refusal(answer, self._client.limits, pairs)
            start_response(f"{status} {HTTPStatus(status).phrase}", named)
            # Not every server leaves the body of an answer to HEAD out.
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
        added = fields(answer, self._client.limits, pairs)

        def start_with_fields(
            status: str, headers: list[tuple[str, str]], *error: object
        ) -> Callable[[bytes], object]:
            return start_response(status, [*headers, *added], *error)

        return self._app(environ, start_with_fields)
