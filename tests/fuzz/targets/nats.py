"""NATS: streams of clients and of servers.

Frames are the same however a stream is cut, the server reads what drld forwards of it as drld does,
and what drld says to the client stands between the server's operations.
"""

from __future__ import annotations

import re

from tests.fuzz.targets.base import Target
from tests.fuzz.targets.broker_frames import check_broker, check_client


def check(data: bytes) -> bool:
    if len(data) < 2:
        return False
    greeted = check_broker(
        "nats", data, lambda number: b"-ERR 'mark %06d'\r\n" % number, operations, b"PONG"
    )
    return check_client("nats", data) or greeted


def operations(data: bytes) -> list[bytes]:
    """A server's operations, and last what is not whole."""
    found = []
    while line := re.match(rb"[^\n]*\n", data):
        end = line.end()
        if line[0].startswith((b"MSG ", b"HMSG")):
            end += int(line[0].removesuffix(b"\r\n").split(b" ")[-1]) + 2
        if end > len(data):
            break
        found.append(data[:end])
        data = data[end:]
    return [*found, data]


CONNECT = b'CONNECT {"verbose":false,"name":"client","user":"u","protocol":1,"headers":true}\r\n'
INFO = b'INFO {"server_id":"x","connect_urls":["192.0.2.1:4222"],"max_payload":1048576} \r\n'
_SEEDS = (
    CONNECT + b"PING\r\nSUB a.* 1\r\nPUB a.b 3\r\nabc\r\nPUB a reply 0\r\n\r\nPONG\r\n",
    b"connect {}\r\npub\ta  5\r\n\r\n\r\nX\r\nUNSUB 1 5\r\n"
    b"HPUB h r 12 14\r\nNATS/1.0\r\n\r\nxy\r\n",
    b"PUB \xc3\xa4 0\r\n\r\nHPUB h 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b'CONNECT {"User":"u","user":"v"}\r\nHPUB h 0 2\r\nxy\r\n'
    b"HPUB h r 17 17\r\nNATS/1.0\r\nk:v\r\n\r\n\r\nHPUB h 000012 12\r\nNATS/1.0\r\n\r\n\r\n",
)


_SERVERS = (
    INFO + b"+OK\r\nPONG\r\nMSG a 1 3\r\nabc\r\nHMSG a 1 r 12 14\r\nNATS/1.0\r\n\r\nxy\r\nPING\r\n"
    b"PONG\r\nPONG\r\n",
    # A server in lame duck mode.
    INFO + b'PONG\r\nINFO {"ldm":true,"connect_urls":["192.0.2.1:4222"]}\r\n'
    b"-ERR 'Server Shutdown'\r\n",
)


def seeds() -> list[bytes]:
    clients = [bytes((piece, 2)) + stream for stream in _SEEDS for piece in (0, 1, 7)]
    return clients + [bytes((piece,)) + stream for stream in _SERVERS for piece in (0, 1, 7)]


_HEADERS = b"NATS/1.0\r\n\r\n"
WORDS = (
    *(CONNECT, INFO, b"PUB a 1\r\nx\r\n", b"PUB a r 0\r\n\r\n", b"HPUB a 12 12\r\n", _HEADERS),
    *(
        b"MSG a 1 3\r\nabc\r\n",
        b"HMSG a 1 12 13\r\n",
        b"+OK\r\n",
        b"PING\r\n",
        b"\r",
        b"\n",
        b"\t",
        b"  ",
    ),
    *(b"  ", b"99999999999", b"1048577", b"[" * 99, b'"verbose":', b"\x0b", b"\xff"),
)
TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
