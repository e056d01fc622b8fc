"""Headers of the PROXY protocol, as HAProxy writes them."""

from __future__ import annotations

import pytest

from drld.errors import FrameError
from drld.messages.proxy_header import MOST_2, ProxyHeader, read, write

SIGNATURE = bytes.fromhex("0d0a0d0a000d0a515549540a")
V1 = b"PROXY TCP4 192.0.2.1 198.51.100.7 51234 1883\r\n"
V2 = SIGNATURE + bytes.fromhex("2111000cc0000201c6336407c822075b")


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (V1, ("192.0.2.1", 51234)),
        (b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n", ("2001:db8::1", 1)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        (V2, ("192.0.2.1", 51234)),
        (SIGNATURE + bytes.fromhex("20000000"), None),
        (SIGNATURE + bytes.fromhex("21310005") + b"abcde", None),
        # Fields behind the addresses are passed over.
        (V2[:14] + b"\0\x0f" + V2[16:] + b"\x04\0\0", ("192.0.2.1", 51234)),
    ],
)
def test_a_header_says_its_size_and_the_source(data: bytes, source: tuple[str, int] | None) -> None:
    assert read(data + b"\x10\x00") == ProxyHeader(len(data), source)
    assert read(data) == ProxyHeader(len(data), source)
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
def test_what_is_written_is_read(source: tuple[str, int], destination: tuple[str, int]) -> None:
    header = write(source, destination)
    assert read(header) == ProxyHeader(len(header), source)


def test_a_header_of_version_2_byte_by_byte() -> None:
    assert write(("192.0.2.1", 51234), ("198.51.100.7", 1883)) == V2


def test_addresses_of_two_families_are_not_said() -> None:
    assert write(("192.0.2.1", 1), ("::1", 2)) == SIGNATURE + bytes.fromhex("20000000")
