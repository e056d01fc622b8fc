"""The clients over TLS: the limiter's certificate is checked, and theirs is shown."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import pytest
import trio

from drld.client import Answer, Client, on_asyncio, on_trio
from drld.client.base import BaseClient
from tests.certificates import Certificate, authority, signed

from .limiter import limiter

PATIENCE_S = 60.0


class Peers(NamedTuple):
    """The TLS contexts of both sides of a connection."""

    client: ssl.SSLContext
    anonymous: ssl.SSLContext
    """The context of a client without a certificate."""
    stranger: ssl.SSLContext
    """The context of a client that trusts other authorities."""
    address: str


def of_client(trusted: Certificate, own: Certificate | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(trusted.cert))
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    directory = tmp_path_factory.mktemp("tls")
    trusted, other = authority(directory, "ours"), authority(directory, "other")
    server = signed(directory, "server", trusted, "serverAuth")
    own = signed(directory, "client", trusted, "clientAuth")

    def context() -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(trusted.cert))
        made.load_cert_chain(server.cert, server.key)
        made.verify_mode = ssl.CERT_REQUIRED
        return made

    with limiter(directory / "requests.sock", tls=context) as (_, address):
        yield Peers(
            of_client(trusted, own), of_client(trusted, None), of_client(other, own), address
        )


def in_threads(address: str, tls: ssl.SSLContext | None, times: int) -> tuple[BaseClient, Answer]:
    with Client(address, tls=tls, timeout_s=PATIENCE_S) as client:
        for _ in range(times):
            answer = client.check("other")
        return client, answer


def in_asyncio(address: str, tls: ssl.SSLContext | None, times: int) -> tuple[BaseClient, Answer]:
    async def main() -> tuple[BaseClient, Answer]:
        async with on_asyncio.Client(address, tls=tls, timeout_s=PATIENCE_S) as client:
            answers = await asyncio.gather(*(client.check("other") for _ in range(times)))
            return client, answers[-1]

    return asyncio.run(main())


def in_trio(address: str, tls: ssl.SSLContext | None, times: int) -> tuple[BaseClient, Answer]:
    async def main() -> tuple[BaseClient, Answer]:
        found: list[Answer] = []
        async with on_trio.Client(address, tls=tls, timeout_s=PATIENCE_S) as client:

            async def check() -> None:
                found.append(await client.check("other"))

            async with trio.open_nursery() as nursery:
                for _ in range(times):
                    nursery.start_soon(check)
            return client, found[-1]

    return trio.run(main)


Ask: TypeAlias = "Callable[[str, ssl.SSLContext | None, int], tuple[BaseClient, Answer]]"
ALL = pytest.mark.parametrize("ask", [in_threads, in_asyncio, in_trio])


@ALL
def test_a_client_with_a_certificate_is_answered(ask: Ask, peers: Peers) -> None:
    client, answer = ask(peers.address, peers.client, 20)
    assert (answer.admitted, answer.degraded) == (True, False)
    assert client.counts["answered"] == 20
    assert client.counts["failures"] == 0


@ALL
def test_without_a_certificate_of_either_side_it_decides_by_itself(
    ask: Ask, peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    for tls, reason in (
        # TLS 1.3 tells the client late, as an alert, or as an end.
        (peers.anonymous, ""),
        (peers.stranger, "CERTIFICATE_VERIFY_FAILED"),
        # The limiter takes the greeting for a bad handshake.
        (None, ""),
    ):
        caplog.clear()
        client, answer = ask(peers.address, tls, 1)
        assert (answer.admitted, answer.degraded) == (True, True)
        assert client.counts["failures"] == 1
        (line,) = caplog.messages
        assert line.startswith("the limiter does not answer (")
        assert reason in line


@ALL
def test_a_unix_socket_is_plain(ask: Ask) -> None:
    with pytest.raises(ValueError, match="tls: must be None with a unix socket"):
        ask("/run/drld/requests.sock", ssl.create_default_context(), 1)


def test_a_kept_connection_that_has_ended_is_replaced(peers: Peers) -> None:
    with Client(peers.address, tls=peers.client, timeout_s=PATIENCE_S) as client:
        assert not client.check("other").degraded
        (kept,) = client._idle
        # The limiter's end of it, as after a restart.
        kept._socket.shutdown(socket.SHUT_RDWR)
        assert not client.check("other").degraded
        assert client.counts["failures"] == 0
