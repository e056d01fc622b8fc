"""Headers of the PROXY protocol, as HAProxy writes them."""

from __future__ import annotations

import pytest

from drld.errors import FrameError
from drld.messages.proxy_header import MOST_2, Endpoint, Endpoints, ProxyHeader, read, write

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
V1 = b"PROXY TCP4 192.0.2.1 198.51.100.7 51234 1883\r\n"
ENDS = Endpoints(("192.0.2.1", 51234), ("198.51.100.7", 1883))
V2 = SIGNATURE + bytes.fromhex("2111000cc0000201c6336407c822075b")


@pytest.mark.parametrize(
    ("data", "endpoints"),
    [
        (V1, ENDS),
        (b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", Endpoints(("2001:db8::1", 1), ("::1", 65535))),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        (V2, ENDS),
        (SIGNATURE + bytes.fromhex("20000000"), None),
        (SIGNATURE + bytes.fromhex("21310005") + b"abcde", None),
        # Fields behind the addresses are passed over.
        (V2[:14] + b"\0\x0f" + V2[16:] + b"\x04\0\0", ENDS),
    ],
)
def test_a_header_says_its_size_and_the_addresses(data: bytes, endpoints: Endpoints | None) -> None:
    assert read(data + b"\x10\x00") == ProxyHeader(len(data), endpoints)
    assert read(data) == ProxyHeader(len(data), endpoints)
    for size in range(len(data)):
        assert read(data[:size]) is None


@pytest.mark.parametrize(
    ("data", "claim"),
    [
        (b"\x10\x0e\0\4MQTT", "must begin the connection, as accept_proxy is set"),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 51234\r\n", "must have a family"),
        (b"PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n", "must have a family"),
        (b"PROXY TCP4 192.0.2 198.51.100.7 1 2\r\n", "must have IP addresses"),
        (b"PROXY TCP4 ::1 198.51.100.7 1 2\r\n", "must have addresses of its family"),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 1 65536\r\n", "must have ports"),
        (b"PROXY TCP4 192.0.2.1 198.51.100.7 +1 2\r\n", "must have ports"),
        (b"PROXY " + b"x" * 107, "must end within 107 bytes"),
        (SIGNATURE + b"\x31\x11\0\x0c", "must have version 2"),
        (SIGNATURE + b"\x21\x11" + MOST_2.to_bytes(2, "big"), "must have at most 4096 bytes"),
        (SIGNATURE + b"\x21\x11\0\x04abcd", "must have two addresses"),
    ],
)
def test_anything_else_is_refused(data: bytes, claim: str) -> None:
    with pytest.raises(FrameError, match=f"PROXY header: {claim}"):
        read(data)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (("192.0.2.1", 51234), ("198.51.100.7", 1883)),
        (("2001:db8::1", 1), ("fe80::1", 65535)),
    ],
)
def test_what_is_written_is_read(source: Endpoint, destination: Endpoint) -> None:
    header = write(Endpoints(source, destination))
    assert read(header) == ProxyHeader(len(header), Endpoints(source, destination))


def test_a_header_of_version_2_is_right_byte_by_byte() -> None:
    assert write(ENDS) == V2


def test_addresses_of_two_families_and_unknown_ones_are_not_said() -> None:
    local = SIGNATURE + bytes.fromhex("20000000")
    assert write(Endpoints(("192.0.2.1", 1), ("::1", 2))) == local
    assert write(None) == local
