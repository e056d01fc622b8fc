"""The greeting: both sides say which versions of the batch protocol they speak.

The client begins with `magic 6 | lowest version 1 | highest version 1 | process 8`. The limiter
answers with `magic 6 | version 1 | reserved 1`: the highest version that both speak, or 0, after
which it ends the connection. The first byte is none with which another protocol begins.

`process` is a random number of the client's process. The limiter counts how many processes ask it,
so that a client without a limiter knows among how many its share is divided.
"""

from __future__ import annotations

import struct

from drld.errors import WireError

MAGIC = b"\x00drld\n"
VERSION = 1
"""The only version."""
_HELLO = struct.Struct(">6sBBQ")
_WELCOME = struct.Struct(">6sBB")
HELLO_BYTES = _HELLO.size
WELCOME_BYTES = _WELCOME.size


def hello(process: int) -> bytes:
    """Return the first bytes of a client."""
    return _HELLO.pack(MAGIC, VERSION, VERSION, process)


def read_hello(data: bytes) -> tuple[int, int]:
    """Return the version to speak, or 0 if none is common, and the client's process.

    Raises:
        WireError: the bytes are no greeting of a client.
    """
    if len(data) != HELLO_BYTES:
        raise WireError("length", f"{len(data)} bytes are no greeting")
    magic, lowest, highest, process = _HELLO.unpack(data)
    if magic != MAGIC or not 0 < lowest <= highest:
        raise WireError("value", "this is no greeting of a client of drld")
    return VERSION if lowest <= VERSION <= highest else 0, process


def welcome(version: int) -> bytes:
    """Return the limiter's answer."""
    return _WELCOME.pack(MAGIC, version, 0)


def read_welcome(data: bytes) -> None:
    """Check the limiter's answer.

    Raises:
        WireError: the other side does not speak this version, or is no limiter.
    """
    if len(data) != WELCOME_BYTES or not data.startswith(MAGIC):
        raise WireError("value", "no limiter answers here: check the address")
    if data[6] != VERSION:
        raise WireError("version", "the limiter and this client have no version in common")
