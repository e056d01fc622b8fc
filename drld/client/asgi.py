"""Middleware for ASGI: requests above a limit are answered with 429 before the application.

It imports no framework. Starlette and FastAPI take it by `add_middleware`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from drld.client.base import AsyncClient
from drld.client.protocol.http_fields import caller_of, fields, refusal
from drld.client.protocol.model import NO_PAIRS, Question

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def address(scope: Scope) -> str:
    """Return the client's address as the server sees it.

    Behind a proxy, the server must be told to believe `X-Forwarded-For`.
    """
    client = scope.get("client")
    return caller_of(client[0]) if client else ""


class RateLimitMiddleware:
    """ASGI middleware that asks a limiter about each request of HTTP."""

    def __init__(
        self,
        app: App,
        *,
        client: AsyncClient,
        namespace: str,
        descriptor: Callable[[Scope], Mapping[str, str] | None] = lambda _: NO_PAIRS,
        caller: Callable[[Scope], str] = address,
    ) -> None:
        """Ask about each request of HTTP.

        Args:
            app: answers the requests that may pass.
            client: a client of the server's event loop.
            namespace: the namespace of the limits.
            descriptor: returns the descriptor of a request; None: it is not limited.
            caller: returns the caller of a request.
        """
        self._app = app
        self._client = client
        self._namespace = namespace
        self._descriptor = descriptor
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request above a limit; otherwise call the application."""
        pairs = self._descriptor(scope) if scope["type"] == "http" else None
        if pairs is None:
            await self._app(scope, receive, send)
            return
        question = Question(self._namespace, pairs, caller=self._caller(scope))
        (answer,) = await self._client.ask([question])
        if not answer.admitted:
            status, named, body = refusal(answer, self._client.limits, pairs)
            headers = _encoded(named)
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        added = _encoded(fields(answer, self._client.limits, pairs))

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        await self._app(scope, receive, send_with_fields)


def _encoded(named: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named]
