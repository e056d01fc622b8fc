"""A client's initial sequence number, from the headers of its SYN (TCP_SAVED_SYN)."""

from __future__ import annotations

_SHORTEST_IPV4, _IPV6 = 20, 40
_TCP = 6
_SHORTEST_TCP = 20
_OPTIONS = (0, 43, 60)
"""IPv6 extension headers with a length field: hop-by-hop, routing, destination."""


def initial_sequence(headers: bytes) -> int | None:
    """The initial sequence number of a SYN.

    Args:
        headers: the headers of the SYN, from the network header on.

    Returns the number; None: these are not the headers of a TCP segment.
    """
    at = _transport(headers)
    if at is None or len(headers) < at + _SHORTEST_TCP:
        return None
    return int.from_bytes(headers[at + 4 : at + 8], "big")


def _transport(headers: bytes) -> int | None:
    """The offset of the TCP header; None: there is none."""
    version = headers[0] >> 4 if headers else 0
    if version == 4 and len(headers) >= _SHORTEST_IPV4:
        at = (headers[0] & 15) * 4
        return at if headers[9] == _TCP and at >= _SHORTEST_IPV4 else None
    if version != 6 or len(headers) < _IPV6:
        return None
    following, at = headers[6], _IPV6
    while following in _OPTIONS and len(headers) >= at + 2:
        following, at = headers[at], at + (headers[at + 1] + 1) * 8
    return at if following == _TCP else None
