"""Who calls, where a question does not say it: the client's address, or the one it calls for.

A proxy adds the address of its own client to the end of `X-Forwarded-For`; everything before it is
what that client claims. So the list is read from its end for as long as a trusted proxy has
written it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address

from drld.requests.spec import Network

_MAX_PROXIES = 16
"""Addresses of the list that are looked at: more proxies than stand in a row anywhere."""


def caller_of(client: str, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """The caller of a question.

    Args:
        client: who has connected: an address, or another text.
        forwarded: the fields `X-Forwarded-For`, in their order.
        trusted: networks of the proxies that are believed.
    """
    try:
        address = ip_address(client)
    except ValueError:
        return client
    claimed = [] if not trusted else ",".join(forwarded).rsplit(",", _MAX_PROXIES)[-_MAX_PROXIES:]
    while claimed and any(address in network for network in trusted):
        try:
            address = ip_address(claimed.pop().strip())
        except ValueError:
            break
    if isinstance(address, IPv6Address):
        # One host commonly has the addresses of a /64.
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(address)
