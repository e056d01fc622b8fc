"""Protection of loopback addresses from DNS rebinding.

A page of a stranger, in a browser on this host, may ask the stranger's own name for data. If that
name's address becomes 127.0.0.1, the browser asks the daemon, and lets the page read the answer. It
sends the name in `Host`, which gives it away: requests that mean this host name a loopback address
or `localhost`. The daemon does not know the names of its addresses in the network. TLS protects
these, as no certificate has the stranger's name.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(rb"(?:\[([0-9A-Fa-f:.]{2,45})\]|([A-Za-z0-9.-]{1,253}))(?::[0-9]{0,5})?")


def guarded(app: ASGIApp) -> ASGIApp:
    """The application, for requests of clients that know which host they ask."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        # HTTP/1.0 need not name a host, and no browser speaks it.
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if scope["state"]["peer"].loopback and not all(map(names_loopback, hosts)):
            error = "Host must be localhost or a loopback address, as the address asked is"
            await JSONResponse({"error": error}, 421)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def names_loopback(host: bytes) -> bool:
    """Whether the value of a header `Host` names this host by a loopback address."""
    match = _HOST.fullmatch(host)
    if match is None:
        return False
    address, name = (part and part.decode() for part in match.groups())
    if name and name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(address or name).is_loopback
    except ValueError:
        return False
