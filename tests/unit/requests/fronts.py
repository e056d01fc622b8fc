"""A front of requests over real sockets, in the process of the test."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple

import httpx
import trio

from drld import config
from drld.control.turns import Turns
from drld.requests.datapath import RequestDatapath
from drld.requests.front.server import serve_requests
from drld.requests.spec import Address, RequestsSpec
from tests.certificates import Certificate

from .good import GOOD
from .made import bucket, limit, limited, of_plan

Tls = Callable[[], ssl.SSLContext | None]
PROXIES = [ip_network("127.0.0.1")]
GET = b"GET /v1/check?namespace=api HTTP/1.1\r\nHost: x\r\n\r\n"


class Front(NamedTuple):
    addresses: list[Address]
    datapath: RequestDatapath
    stopping: trio.Event

    @property
    def tcp(self) -> tuple[str, int]:
        address = self.addresses[0]
        assert not isinstance(address, str)
        return address

    async def stream(self, own: int = 1) -> trio.SocketStream:
        """A connection from an address of its own."""
        return await trio.open_tcp_stream(*self.tcp, local_address=f"127.0.0.{own}")

    def client(self, tls: ssl.SSLContext | None = None) -> httpx.AsyncClient:
        host, port = self.tcp
        scheme, verify = ("https", tls) if tls else ("http", True)
        return httpx.AsyncClient(base_url=f"{scheme}://{host}:{port}", timeout=5, verify=verify)


@asynccontextmanager
async def front(
    tmp_path: Path, datapath: RequestDatapath | None = None, tls: Tls = lambda: None
) -> AsyncIterator[Front]:
    """A server on a loopback address and a unix socket; stops promptly or fails."""
    datapath = datapath or limited((limit(), bucket(2, rate=1)), (of_plan(2), bucket(1)))
    stopping = trio.Event()
    listen: list[Address] = [("127.0.0.1", 0), str(tmp_path / "requests.sock")]
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(
            partial(
                serve_requests,
                clock=lambda: 0,
                stopping=stopping,
                trusted=lambda: PROXIES,
                tls=tls,
            ),
            datapath,
            listen,
            Turns(),
        )
        yield Front(addresses, datapath, stopping)
        stopping.set()
        nursery.cancel_scope.cancel()


def of_files(own: Certificate, client_ca: Certificate | None = None) -> ssl.SSLContext:
    """The TLS context that the configuration makes of these files."""
    lines = [f'certificate = "{own.cert}"', f'key = "{own.key}"']
    lines += [f'client_ca = "{client_ca.cert}"'] if client_ca else []
    text = GOOD.replace("[requests]", "\n".join(["[requests]", *lines]))
    tls = config.parse(text, "drld.toml").plane(RequestsSpec).tls
    assert tls is not None
    return tls.context
