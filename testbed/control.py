"""The testbed's requests to running daemons, over their control sockets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import trio

from testbed.crew import Child
from testbed.errors import MeasurementError

_ANSWER_S = 60.0
_POLL_S = 0.02


def client(socket: Path, timeout_s: float = _ANSWER_S) -> httpx.AsyncClient:
    """A client of the daemon that listens on this socket."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket), verify=False)
    return httpx.AsyncClient(transport=transport, base_url="http://drld", timeout=timeout_s)


async def ask(socket: Path, path: str) -> Any:
    """A daemon's answer to a request.

    Raises:
        MeasurementError: there is no answer for a long time.
    """
    async with client(socket) as asking:
        try:
            return (await asking.get(path)).raise_for_status().json()
        except httpx.HTTPError as error:
            raise MeasurementError(f"{socket}{path}: {error!r}") from error


async def await_ready(
    socket: Path, daemon: Child, timeout_s: float, *, peers_too: bool = True
) -> dict[str, Any]:
    """Wait until a daemon is ready and connected to all its peers; return its status.

    Raises:
        MeasurementError: the daemon ended, or was not ready in time.
    """
    status: dict[str, Any] = {}
    with trio.move_on_after(timeout_s):
        async with client(socket) as asking:
            while daemon.process.poll() is None:
                try:
                    status = (await asking.get("/v1/status")).raise_for_status().json()
                except httpx.HTTPError:
                    status = {}
                peers = status.get("peers", {})
                if status.get("ready") and (
                    not peers_too or peers["connected"] == peers["configured"]
                ):
                    return status
                await trio.sleep(_POLL_S)
    raise await daemon.failure(f"did not become ready (last status: {status or 'none'})")
