"""The address of a limiter, as `[requests] listen` writes it."""

from __future__ import annotations

from typing import TypeAlias

Address: TypeAlias = "tuple[str, int] | str"
"""A TCP address and port, or the path of a unix socket."""


def read_address(text: str) -> Address:
    """Return the address of a text: `/run/drld/requests.sock`, `127.0.0.1:8099`, `[::1]:8099`.

    Raises:
        ValueError: the text is no address.
    """
    if text.startswith("/"):
        return text
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError(f"{text!r}: must be the path of a socket, or HOST:PORT")
    return host, int(port)
