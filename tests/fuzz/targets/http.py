"""The addresses of `[http]`: a stranger changes nothing, and reads nothing by another name.

Also what `Host` may be on a loopback address: what is taken for this host's name is one, if the
system's resolver of literal addresses is the judge.
"""

from __future__ import annotations

import functools
import ipaddress
import re
import socket

import trio
from trio.testing import MockClock

from drld.control.app import make_public_app
from drld.control.rebinding import guarded, names_loopback
from drld.control.tcp import HttpConnections, HttpPeer
from drld.control.turns import Turns
from tests.control_fake import CONFIGURATION, FakeDaemon
from tests.fuzz.targets import api
from tests.fuzz.targets.base import Target

PEER = HttpPeer("127.0.0.1", 1, loopback=True)
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_OTHER_VERSION = re.compile(rb"HTTP/(?!1\.1)[0-9]\.[0-9]")
"""Only HTTP/1.1 must name a host, and browsers speak no other version of these."""
_HOST = re.compile(rb"^host:[ \t]*([^\r\n]*?)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


def check(data: bytes) -> bool:
    """The bytes of a client; alone, and the value of `Host` in them."""
    for host in (data, *_HOST.findall(data)):
        check_host(host)
    daemon, connections = serving()
    answer, _ = trio.run(
        api.converse, data, 0, connections, PEER, clock=MockClock(autojump_threshold=0)
    )
    assert daemon.reloads == 0
    assert daemon.configuration is CONFIGURATION
    assert daemon.ring is daemon.configured
    statuses = _STATUS.findall(answer)
    assert {int(status) for status in statuses} <= {*api.STATUSES, 421}
    if b"200" in statuses:
        named = _HOST.findall(data)
        assert _OTHER_VERSION.search(data) or any(map(names_loopback, named)), data
    return b"200" in statuses


def check_host(data: bytes) -> None:
    """A resolver of addresses takes what we take, and for a loopback address too."""
    if not names_loopback(data):
        return
    host = re.sub(r":[0-9]*$", "", data.decode().lower())
    if host.rstrip(".") == "localhost":
        return
    flags = socket.AI_NUMERICHOST
    for *_, address in socket.getaddrinfo(host.strip("[]"), None, flags=flags):
        assert ipaddress.ip_address(address[0]).is_loopback


@functools.cache
def serving() -> tuple[FakeDaemon, HttpConnections]:
    """One for all inputs, as none changes anything."""
    daemon, turns = FakeDaemon(), Turns()
    return daemon, HttpConnections(guarded(make_public_app(daemon, turns)), turns)


def seeds() -> list[bytes]:
    return [
        b"%b /metrics HTTP/1.1\r\nHost: %b\r\n\r\n" % words
        for words in (
            (b"GET", b"localhost:9617"),
            (b"GET", b"[::1]:1"),
            (b"HEAD", b"127.0.0.1"),
        )
    ]


WORDS = (*api.WORDS, b"/metrics", b"localhost", b"127.0.0.1", b"[::1]", b"evil.example", b"@")

TARGET = Target(check, seeds, words=WORDS, max_bytes=1500)
