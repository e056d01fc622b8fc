"""Protection of the control socket from pages of strangers, in the browser of an operator.

An operator who looks at the page has the socket on a port of the own host (`ssh -L`), where every
page in the same browser can send requests to. So the socket takes from a browser what the drld page
needs, and nothing else:

- A request that may change something is refused if a browser sent it; the page sends none. Browsers
  send `Origin` with every such request. If a user has switched that off, they send `Sec-Fetch-*`.
- `Host` must name this host, or the daemon as `drld`, against DNS rebinding
  (drld.control.rebinding).

There are no headers of CORS, so that no other page may read an answer.
"""

from __future__ import annotations

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from drld.control.rebinding import names_loopback


def guarded(app: ASGIApp) -> ASGIApp:
    """The application, for clients that mean this host, and for pages of its own."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refused = _refused(scope["method"], scope["headers"])
        await (app if refused is None else refused)(scope, receive, send)

    return answer


def _refused(method: str, headers: list[tuple[bytes, bytes]]) -> Response | None:
    """The answer to a request that a stranger's page may have sent."""
    # HTTP/1.0 need not name a host, and no browser speaks it.
    if not all(_ours(value) for name, value in headers if name == b"host"):
        return JSONResponse({"error": "Host: must be localhost, a loopback address or drld"}, 421)
    if method not in ("GET", "HEAD") and any(_from_browser(name) for name, _ in headers):
        return JSONResponse({"error": "a browser may not change anything: use drlctl"}, 403)
    return None


def _from_browser(header: bytes) -> bool:
    return header == b"origin" or header.startswith(b"sec-fetch-")


def _ours(host: bytes) -> bool:
    """Whether a local client names the host so; `drlctl` and the examples for curl say `drld`."""
    return host == b"drld" or names_loopback(host)
