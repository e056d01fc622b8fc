"""Sends an answer piece by piece, as an ASGI application does."""

from __future__ import annotations

from starlette.types import Send


async def begin(send: Send, media_type: bytes) -> None:
    """Send the head of an answer with status 200."""
    headers = [(b"content-type", media_type)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def proceed(send: Send, body: bytes, *, more: bool) -> None:
    """Send a piece of the body; the last has `more=False`."""
    await send({"type": "http.response.body", "body": body, "more_body": more})
