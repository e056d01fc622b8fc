"""Figures for other hosts: what they may ask, over TLS, and what strangers cannot do."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from starlette.routing import Route
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from drld import config
from drld.control import tcp
from drld.control.app import make_app, make_public_app
from drld.control.connection import REQUEST_S
from drld.control.rebinding import names_loopback
from drld.control.tcp import ACCEPT_PAUSE_S, TakingTurns, serve_http
from drld.control.turns import Turns
from drld.errors import ConfigError
from tests.certificates import Certificate, authority, signed, trusting
from tests.control_fake import CONFIGURATION, FakeDaemon, client, served
from tests.unit.config.good import GOOD
from tests.unit.control.test_crowds import Passes

Tls = Callable[[], ssl.SSLContext | None]
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@asynccontextmanager
async def listening(
    daemon: FakeDaemon, tls: Tls = lambda: None, *hosts: str
) -> AsyncIterator[list[tuple[str, int]]]:
    """A server on loopback; stops promptly or fails."""
    async with trio.open_nursery() as nursery:
        listen = [(host, 0) for host in hosts or ("127.0.0.1",)]
        yield await nursery.start(serve_http, daemon, listen, tls, Turns())
        nursery.cancel_scope.cancel()
        nursery.cancel_scope.deadline = trio.current_time()


def asking(port: int, trust: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    """A client of a server on 127.0.0.1; nothing takes it longer than five seconds."""
    scheme = "http" if trust is None else "https"
    return httpx.AsyncClient(
        base_url=f"{scheme}://127.0.0.1:{port}", verify=trust or False, timeout=5
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    """An authority, and certificates that it or another has signed."""
    directory = tmp_path_factory.mktemp("tls")
    ca, stranger = authority(directory, "ca"), authority(directory, "stranger")
    return {
        "ca": ca,
        "server": signed(directory, "server", ca, "serverAuth"),
        "other": signed(directory, "other", stranger, "serverAuth"),
        "client": signed(directory, "client", ca, "clientAuth"),
        "intruder": signed(directory, "intruder", stranger, "clientAuth"),
        "stranger": stranger,
    }


def of_files(own: Certificate, client_ca: Certificate | None = None) -> ssl.SSLContext:
    """The TLS context that the configuration makes of these files."""
    table = f'[http]\nlisten = "127.0.0.1:1"\ncertificate = "{own.cert}"\nkey = "{own.key}"\n'
    if client_ca:
        table += f'client_ca = "{client_ca.cert}"\n'
    http = config.parse(GOOD + table, "drld.toml").http
    assert http is not None
    assert http.tls is not None
    return http.tls.context


async def test_other_hosts_read_the_metrics_and_nothing_else(
    daemon: FakeDaemon, path: Path
) -> None:
    app = make_app(daemon, Turns())
    async with listening(daemon) as [(_, port)], asking(port) as other, served(daemon, path):
        async with client(path) as own:
            assert (await other.get("/metrics")).text == (await own.get("/metrics")).text
        assert (await other.head("/metrics")).status_code == 200
        for route in app.routes:  # type: ignore[attr-defined]  # it is Starlette's
            url = route.path.replace("{name}", "b").replace("{id:int}", "1")
            for method in {*route.methods, "POST"} - {"HEAD"}:
                if (url, method) != ("/metrics", "GET"):
                    answer = await other.request(method, url, content=b"{}")
                    assert answer.status_code == (405 if url == "/metrics" else 404)
    assert daemon.reloads == 0
    assert daemon.configuration is CONFIGURATION


@pytest.mark.parametrize("methods", [["POST"], ["GET", "DELETE"], None])
def test_a_route_that_may_change_something_is_not_for_other_hosts(
    daemon: FakeDaemon, methods: list[str] | None
) -> None:
    class Endpoint:
        """Starlette leaves the methods of such a route open."""

    route = Route("/x", Endpoint, methods=methods)
    with pytest.raises(ValueError, match="/x: is not for other hosts"):
        make_public_app(daemon, Turns(), [lambda *_: [route]])


async def test_tls_uses_the_certificate_of_the_last_reload(
    daemon: FakeDaemon, files: dict[str, Certificate]
) -> None:
    ca, stranger = (trusting(files[name]) for name in ("ca", "stranger"))
    contexts = [of_files(files["server"])]
    async with (
        listening(daemon, lambda: contexts[-1]) as [(_, port)],
        asking(port, ca) as one,
        asking(port, stranger) as two,
        asking(port) as plain,
    ):
        assert (await one.get("/metrics")).status_code == 200
        with pytest.raises(httpx.ConnectError):
            await two.get("/metrics")
        with pytest.raises(httpx.TransportError):
            await plain.get("/metrics")
        contexts.append(of_files(files["other"]))
        assert (await two.get("/metrics")).status_code == 200
        assert (await one.get("/metrics")).status_code == 200  # The connection is an old one.


async def test_clients_show_a_certificate_where_an_authority_is_named(
    daemon: FakeDaemon, files: dict[str, Certificate]
) -> None:
    context = of_files(files["server"], files["ca"])
    async with listening(daemon, lambda: context) as [(_, port)]:
        async with asking(port, trusting(files["ca"], files["client"])) as one:
            assert (await one.get("/metrics")).status_code == 200
        for own in (None, files["intruder"]):
            async with asking(port, trusting(files["ca"], own)) as one:
                with pytest.raises(httpx.TransportError):
                    await one.get("/metrics")


GOOD_HOSTS = (
    b"localhost LocalHost:9617 localhost. 127.0.0.1 127.9.9.9:80 [::1] [::1]:9617 127.0.0.1:"
)
BAD_HOSTS = (
    b"evil.example localhost.evil.example 10.0.0.1 127.0.0.1.evil.example user@127.0.0.1 [::2]:1 "
    b"::1 127.0.0.1:999999 127.1 [127.0.0.1 \xff"
)


def test_names_of_this_host_are_recognised() -> None:
    assert [host for host in GOOD_HOSTS.split() if not names_loopback(host)] == []
    assert [host for host in [b"", *BAD_HOSTS.split()] if names_loopback(host)] == []


async def test_a_loopback_address_is_not_read_by_another_name(daemon: FakeDaemon) -> None:
    async with listening(daemon) as [(_, port)], asking(port) as one:
        answer = await one.get("/metrics", headers={"Host": f"evil.example:{port}"})
        assert answer.status_code == 421
        assert answer.json()["error"].startswith("Host must be localhost or a loopback address")
        assert (await one.get("/metrics", headers={"Host": "localhost"})).status_code == 200


async def test_an_address_of_the_network_has_any_name(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tcp.HttpConnections, "peer", lambda *_: tcp.HttpPeer("10.0.0.9", 1, loopback=False)
    )
    async with listening(daemon) as [(_, port)], asking(port) as one:
        answer = await one.get("/metrics", headers={"Host": "lim1.example"})
        assert answer.status_code == 200


async def test_both_families_share_one_port(daemon: FakeDaemon) -> None:
    async with (
        listening(daemon, lambda: None, "0.0.0.0") as [(_, port)],
        trio.open_nursery() as nursery,
        httpx.AsyncClient(verify=False) as one,
    ):
        await nursery.start(serve_http, daemon, [("::", port)], lambda: None, Turns())
        for host in ("127.0.0.1", "[::1]"):
            assert (await one.get(f"http://{host}:{port}/metrics")).status_code == 200
        nursery.cancel_scope.cancel()


async def test_an_address_that_is_taken_is_named(daemon: FakeDaemon) -> None:
    async with listening(daemon) as [(host, port)]:
        with pytest.raises(ConfigError) as caught:
            await serve_http(daemon, [("127.0.0.1", 0), (host, port)], lambda: None, Turns())
    assert caught.value.problems == [
        f"http.listen: cannot bind 127.0.0.1:{port}: Address already in use"
    ]


async def ended(stream: trio.SocketStream) -> None:
    """Wait until the server closes the connection."""
    try:
        while await stream.receive_some():
            pass
    except trio.BrokenResourceError:
        pass


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00", b"GET /"])
async def test_a_handshake_has_the_time_of_a_request(
    daemon: FakeDaemon, files: dict[str, Certificate], autojump_clock: object, sent: bytes
) -> None:
    context = of_files(files["server"])
    async with listening(daemon, lambda: context) as [endpoint]:
        stream = await trio.open_tcp_stream(*endpoint)
        began = trio.current_time()
        await stream.send_all(sent)
        await ended(stream)
        await stream.aclose()
    # What is no TLS at all ends at once.
    assert trio.current_time() - began == pytest.approx(0 if sent == b"GET /" else REQUEST_S, abs=1)


async def test_strangers_have_places_of_their_own(
    daemon: FakeDaemon,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tcp, "MAX_HTTP_CONNECTIONS", 2)
    monkeypatch.setattr(tcp, "ACCEPT_PAUSE_S", 0)
    async with listening(daemon) as [endpoint], served(daemon, path), AsyncExitStack() as stack:
        first = await stack.enter_async_context(await trio.open_tcp_stream(*endpoint))
        # One address has half of the places.
        async with await trio.open_tcp_stream(*endpoint) as again:
            with trio.fail_after(5):
                await ended(again)
        other = partial(trio.open_tcp_stream, *endpoint, local_address="127.0.0.2")
        second = await stack.enter_async_context(await other())
        await second.send_all(REQUEST)
        assert await second.receive_some()
        async with await trio.open_tcp_stream(*endpoint, local_address="127.0.0.3") as third:
            with trio.fail_after(5):
                await ended(third)
        async with client(path) as own:
            assert (await own.get("/v1/status")).status_code == 200
        # Its place is free when it has gone.
        await first.aclose()
        await wait_all_tasks_blocked()
        async with await trio.open_tcp_stream(*endpoint) as again:
            await again.send_all(REQUEST)
            assert await again.receive_some()
    assert any("refused an HTTP connection of 127.0.0.1:" in it.message for it in caplog.records)
    assert {vars(it).get("event") for it in caplog.records} >= {"http.refused"}


async def test_connections_are_accepted_at_a_pace(
    daemon: FakeDaemon, autojump_clock: object
) -> None:
    """The pace is that of all addresses together: further connections wait in the backlog."""
    async with listening(daemon, lambda: None, "127.0.0.1", "127.0.0.2") as endpoints:
        began = trio.current_time()
        async with AsyncExitStack() as stack:
            for endpoint in endpoints * 10:
                stream = await stack.enter_async_context(await trio.open_tcp_stream(*endpoint))
                await stream.send_all(REQUEST)
            await stream.receive_some()
        assert trio.current_time() - began >= 18 * ACCEPT_PAUSE_S


async def test_a_pass_of_the_loop_has_one_step_of_a_handshake() -> None:
    passes, turns = Passes(), Turns()

    async def read(stream: trio.abc.Stream) -> None:
        assert await TakingTurns(stream, turns).receive_some() == b"x"
        passes.happened()

    async with trio.open_nursery() as counting:
        counting.start_soon(passes.count)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                ours, theirs = memory_stream_pair()
                await ours.send_all(b"x")
                nursery.start_soon(read, theirs)
        counting.cancel_scope.cancel()
    assert sum(passes.events.values()) == 20
    assert passes.worst() <= 2


async def test_nothing_is_lost_when_a_turn_is_not_waited_for() -> None:
    turns = Turns()
    ours, theirs = memory_stream_pair()
    stream = TakingTurns(theirs, turns)
    await ours.send_all(b"x")
    async with turns._next:
        with trio.move_on_after(0):
            await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.receive_some)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert await stream.receive_some() == b"x"


async def test_a_client_that_resets_its_connection_harms_no_other(
    daemon: FakeDaemon, files: dict[str, Certificate], caplog: pytest.LogCaptureFixture
) -> None:
    context = of_files(files["server"])
    async with listening(daemon, lambda: context) as [(host, port)]:
        for sent in (b"", b"\x16", b"\x16\x03\x01"):
            with socket.create_connection((host, port)) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                sock.sendall(sent)
        async with asking(port, trusting(files["ca"])) as one:
            assert (await one.get("/metrics")).status_code == 200
    assert [it.message for it in caplog.records if it.levelname in ("WARNING", "ERROR")] == []
