"""The PROXY protocol, versions 1 and 2: a proxy's header with the addresses of its client.

Source: *The PROXY protocol*, versions 1 and 2 (HAProxy, doc/proxy-protocol.txt). The addresses are
not known if they are not of TCP, or if the proxy made the connection for itself.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

from drld.errors import FrameError

Endpoint: TypeAlias = tuple[str, int]
"""An IP address and a port."""

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_BEGIN_1 = b"PROXY "
_MOST_1 = 107
"""The most bytes of a header of version 1, with its end."""
_HEAD_2 = 16
MOST_2 = 4096
"""The most bytes of a header of version 2: addresses need 36, and other fields may follow."""
_LOCAL, _PROXY = 0x20, 0x21
_WIDTHS = {0x11: 4, 0x21: 16}
"""The bytes of an address: of TCP over IPv4, and over IPv6."""


class Endpoints(NamedTuple):
    """The two ends of a connection that a proxy passes on."""

    source: Endpoint
    """The client's address."""
    destination: Endpoint
    """The address that the client connected to."""


class ProxyHeader(NamedTuple):
    """A header that has been read."""

    size: int
    """Bytes of the header."""
    endpoints: Endpoints | None
    """The addresses that the header says; None: it says none."""


def read(data: bytes) -> ProxyHeader | None:
    """Read the header at the beginning of a connection; None: not all of it is there.

    Raises:
        FrameError: the connection does not begin with a header.
    """
    if data.startswith(_SIGNATURE):
        return _read_2(data)
    if data.startswith(_BEGIN_1):
        return _read_1(data)
    if _SIGNATURE.startswith(data) or _BEGIN_1.startswith(data):
        return None
    raise _wrong(f"must begin the connection, as accept_proxy is set (got {data[:12]!r})")


def write(endpoints: Endpoints | None) -> bytes:
    """Make a header of version 2.

    It has no addresses if these are not known, or of two families.
    """
    if endpoints is None:
        return _SIGNATURE + bytes((_LOCAL, 0, 0, 0))
    ours, theirs = (ip_address(host.partition("%")[0]) for host, _ in endpoints)
    if ours.version != theirs.version:
        return _SIGNATURE + bytes((_LOCAL, 0, 0, 0))
    addresses = ours.packed + theirs.packed
    ports = b"".join(port.to_bytes(2, "big") for _, port in endpoints)
    kind = 0x11 if ours.version == 4 else 0x21
    size = (len(addresses) + len(ports)).to_bytes(2, "big")
    return _SIGNATURE + bytes((_PROXY, kind)) + size + addresses + ports


def _read_1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _MOST_1)
    if end < 0:
        if len(data) >= _MOST_1:
            raise _wrong(f"must end within {_MOST_1} bytes")
        return None
    words = data[:end].split(b" ")
    if words[1:2] == [b"UNKNOWN"]:
        return ProxyHeader(end + 2, None)
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise _wrong(f"must have a family, two addresses and two ports (got {data[:end]!r})")
    try:
        addresses = [ip_address(word.partition(b"%")[0].decode("ascii")) for word in words[2:4]]
    except ValueError:
        raise _wrong(f"must have IP addresses (got {data[:end]!r})") from None
    version = 4 if words[1] == b"TCP4" else 6
    if any(address.version != version for address in addresses):
        raise _wrong(f"must have addresses of its family (got {data[:end]!r})")
    if not all(word.isdigit() and len(word) <= 5 and int(word) <= 0xFFFF for word in words[4:]):
        raise _wrong(f"must have ports from 0 to 65535 (got {data[:end]!r})")
    source, destination = (
        (str(address), int(port)) for address, port in zip(addresses, words[4:], strict=True)
    )
    return ProxyHeader(end + 2, Endpoints(source, destination))


def _read_2(data: bytes) -> ProxyHeader | None:
    if len(data) < _HEAD_2:
        return None
    command, kind = data[12], data[13]
    length = data[14] << 8 | data[15]
    if command not in (_LOCAL, _PROXY):
        raise _wrong(f"must have version 2 and a known command (got {command:#04x})")
    size = _HEAD_2 + length
    if size > MOST_2:
        raise _wrong(f"must have at most {MOST_2} bytes (got {size})")
    if len(data) < size:
        return None
    width = _WIDTHS.get(kind)
    if command == _LOCAL or width is None:
        return ProxyHeader(size, None)
    if length < 2 * width + 4:
        raise _wrong(f"must have two addresses and two ports (got {length} bytes)")
    begin, ports = _HEAD_2, _HEAD_2 + 2 * width
    source, destination = (
        (
            str(ip_address(data[begin + place * width : begin + (place + 1) * width])),
            int.from_bytes(data[ports + 2 * place : ports + 2 * place + 2], "big"),
        )
        for place in range(2)
    )
    return ProxyHeader(size, Endpoints(source, destination))


def _wrong(claim: str) -> FrameError:
    return FrameError(f"PROXY header: {claim}")
