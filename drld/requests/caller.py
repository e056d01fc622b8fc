"""The caller of a question that names none: the client, or the address that a proxy forwards for.

The client's name is that of its certificate, if it has shown one, otherwise its address. A proxy
adds the address of its own client to the end of `X-Forwarded-For`. That client may have written
everything before it. So the list is read from its end, for as long as a trusted proxy has written
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, NamedTuple

from drld.requests.spec import Network

MAX_CALLER_BYTES = 256
"""The most bytes of a caller's name."""
_MAX_PROXIES = 16
"""The number of addresses that are read: more proxies than stand in a row anywhere."""


class Client(NamedTuple):
    """The client of a connection."""

    host: str
    """The client's address, or another text."""
    certificate: str | None = None
    """The name of the client's certificate; None: it has shown none."""

    def __str__(self) -> str:
        return self.host


def caller_of(client: Client, forwarded: Iterable[str], trusted: Sequence[Network]) -> str:
    """Return the caller of a question.

    Args:
        client: the client of the connection.
        forwarded: the fields `X-Forwarded-For`, in their order.
        trusted: the networks of trusted proxies.
    """
    try:
        own = address = _read(client.host)
    except ValueError:
        return client.host
    claimed = [] if not trusted else ",".join(forwarded).rsplit(",", _MAX_PROXIES)[-_MAX_PROXIES:]
    while claimed and any(address in network for network in trusted):
        try:
            address = _read(_without_port(claimed.pop().strip()))
        except ValueError:
            break
    if address is own and client.certificate is not None:
        return client.certificate
    if isinstance(address, IPv6Address):
        # One host commonly has the addresses of a /64.
        return f"{IPv6Address(int(address) >> 64 << 64)}/64"
    return str(address)


def _read(text: str) -> IPv4Address | IPv6Address:
    """Return the address of a text; a server that listens for both families maps IPv4 to IPv6.

    Raises:
        ValueError: the text is no address.
    """
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _without_port(text: str) -> str:
    """Return an address as some proxies write it, `192.0.2.1:4711` or `[2001:db8::1]:4711`, without
    its port."""
    host, bracket, _ = text.removeprefix("[").partition("]")
    if bracket:
        return host
    host, _, port = text.partition(":")
    return text if ":" in port else host


def certificate_name(certificate: Mapping[str, Any]) -> str | None:
    """Return the name of a certificate in the form of `SSLSocket.getpeercert`.

    The name is the first URI (SPIFFE), otherwise the first DNS name, otherwise the common name of
    the subject; None: the certificate has none of these.
    """
    names = certificate.get("subjectAltName", ())
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    for kind, its in (("URI", names), ("DNS", names), ("commonName", subject)):
        if found := [value for name, value in its if name == kind and value]:
            return str(found[0]).encode(errors="ignore")[:MAX_CALLER_BYTES].decode(errors="ignore")
    return None
