"""Who calls, where a question does not say it: the client, or the one that it calls for.

The client is known by the name of its certificate, if it has shown one, else by its address. A
proxy adds the address of its own client to the end of `X-Forwarded-For`; everything before it is
what that client claims. So the list is read from its end for as long as a trusted proxy has written
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from drld.requests.spec import Network

MAX_CALLER_BYTES = 256
"""Of a caller's name."""
_MAX_PROXIES = 16
"""Addresses of the list that are looked at: more proxies than stand in a row anywhere."""


class Client(NamedTuple):
    """Who has connected."""

    host: str
    """An address, or another text."""
    certificate: str | None = None
    """Name of the certificate that it has shown."""

    def __str__(self) -> str:
        return self.host


def caller_of(client: Client, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """The caller of a question.

    Args:
        client: who has connected.
        forwarded: the fields `X-Forwarded-For`, in their order.
        trusted: networks of the proxies that are believed.
    """
    try:
        own = address = ip_address(client.host)
    except ValueError:
        return client.host
    claimed = [] if not trusted else ",".join(forwarded).rsplit(",", _MAX_PROXIES)[-_MAX_PROXIES:]
    while claimed and any(address in network for network in trusted):
        try:
            address = ip_address(claimed.pop().strip())
        except ValueError:
            break
    if address is own and client.certificate is not None:
        return client.certificate
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        # All of IPv4 is in one /64.
        return str(address.ipv4_mapped)
    if isinstance(address, IPv6Address):
        # One host commonly has the addresses of a /64.
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(address)


def certificate_name(certificate: Mapping[str, Any]) -> str | None:
    """The name of a certificate, as `SSLSocket.getpeercert` has it: its first URI (SPIFFE), else
    its first DNS name, else the common name of its subject; None: it has none of these."""
    names = certificate.get("subjectAltName", ())
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    for kind, its in (("URI", names), ("DNS", names), ("commonName", subject)):
        if found := [value for name, value in its if name == kind and value]:
            return str(found[0]).encode(errors="ignore")[:MAX_CALLER_BYTES].decode(errors="ignore")
    return None
