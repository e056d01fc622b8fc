"""Headers of the PROXY protocol: within their bounds, the same however they are cut, and told apart
from what follows."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address

from drld.errors import FrameError
from drld.messages.proxy_header import MOST_2, Endpoints, ProxyHeader, read, write
from tests.fuzz.targets.base import Target


def check(data: bytes) -> bool:
    """The beginning of a connection."""
    found = _read(data)
    if found is None:
        assert len(data) < MOST_2
    if not isinstance(found, ProxyHeader):
        return False
    assert 0 < found.size <= min(len(data), MOST_2)
    assert _read(data[: found.size]) == found
    for size in {0, 1, 12, 15, found.size // 2, found.size - 1} - {found.size}:
        assert _read(data[:size]) is None
    if found.endpoints is not None:
        assert all(str(ip_address(host)) == host for host, _ in found.endpoints)
        again = read(write(found.endpoints))
        assert again is not None
        assert again.endpoints == found.endpoints
    return True


def _read(data: bytes) -> ProxyHeader | str | None:
    """The header, or the reason why the bytes are none."""
    try:
        return read(data)
    except FrameError as error:
        return str(error)


def seeds() -> Iterator[bytes]:
    """Headers of both versions."""
    yield b"PROXY TCP4 192.0.2.1 198.51.100.7 51234 1883\r\nrest"
    yield b"PROXY UNKNOWN\r\n"
    yield write(Endpoints(("192.0.2.1", 51234), ("198.51.100.7", 1883))) + b"rest"
    yield write(Endpoints(("2001:db8::1", 1), ("::1", 2)))
    yield write(None)


TARGET = Target(
    check,
    seeds,
    words=(
        *(b"PROXY ", b"TCP4", b"TCP6", b"UNKNOWN", b"\r\n"),
        write(Endpoints(("::1", 1), ("::1", 2))),
    ),
)
