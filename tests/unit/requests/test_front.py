"""The front over real sockets: answers, bounds on strangers, and the end."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from pathlib import Path

import httpx
import pytest
import trio

from drld.control.connection import MAX_BODY_BYTES, REQUEST_S
from drld.control.turns import Turns
from drld.errors import ConfigError
from drld.requests.datapath import RequestDatapath
from drld.requests.front import server
from drld.requests.front.server import MAX_HEAD_BYTES, serve_requests
from tests.certificates import Certificate, authority, signed, trusting

from .fronts import GET, front, of_files


async def test_a_client_gets_yes_or_no_and_the_fields(tmp_path: Path) -> None:
    async with front(tmp_path) as made, made.client() as client:
        answers = [await client.get("/v1/check?namespace=api") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[0].headers["ratelimit"] == '"limit-1";r=1;t=1'
        assert answers[0].headers["cache-control"] == "no-store"
        assert answers[2].headers["retry-after"] == "1"
        assert answers[2].json()["reason"] == "above the limit limit-1"
        forbidden = await client.get("/v1/check?namespace=api&refused=403")
        assert forbidden.status_code == 403
        assert (await client.get("/v1/check?namespace=other")).status_code == 200
        # Callers are flows: the default is the address, or the one that a trusted proxy names.
        await client.get("/v1/check?namespace=api&caller=bob")
        forwarded = {"X-Forwarded-For": "192.0.2.9"}
        await client.get("/v1/check?namespace=api", headers=forwarded)
        await client.post("/v1/check", json={"namespace": "api"}, headers=forwarded)
        assert len(made.datapath.read(1, 1).flows) == 3


async def test_json_asks_one_thing_or_several(tmp_path: Path) -> None:
    one = {"namespace": "api", "descriptor": {"plan": "free"}}
    async with front(tmp_path) as made, made.client() as client:
        both = await client.post("/v1/check", json=[one, one, {"namespace": "api"}])
        assert both.status_code == 200
        assert [answer["admitted"] for answer in both.json()] == [True, False, True]
        alone = await client.post("/v1/check", json=one)
        assert alone.status_code == 429
        assert alone.headers["ratelimit"].startswith('"limit-1";r=0;t=1')
        after = await client.post("/v1/check", json={**one, "cost": 7, "charge": True})
        assert (after.status_code, after.json()["granted"]) == (200, 7)
        waits = await client.get("/v1/check?namespace=api&cost=2&at_least=1")
        assert (waits.status_code, waits.headers["retry-after"]) == (429, "8")


async def test_a_unix_socket_answers_too(tmp_path: Path) -> None:
    async with front(tmp_path) as made:
        path = made.addresses[1]
        assert isinstance(path, str)
        assert Path(path).stat().st_mode & 0o777 == 0o666
        transport = httpx.AsyncHTTPTransport(uds=path)
        async with httpx.AsyncClient(transport=transport, base_url="http://drld") as client:
            assert (await client.get("/v1/check?namespace=api")).status_code == 200
    assert not Path(path).exists()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /v1/check HTTP/1.1\r\nHost: x\r\n\r\n", 422),
        (b"GET /v1/other HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET http://x/v1/check?namespace=api HTTP/1.1\r\nHost: y\r\n\r\n", 200),
        (b"GET HTTPS://x:1/v1/check?namespace=api HTTP/1.1\r\nHost: y\r\n\r\n", 200),
        (b"GET http://x?namespace=api HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET http:///v1/check?namespace=api HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET http://user@x/v1/check?namespace=api HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"DELETE /v1/check HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n{", 422),
        (b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n", 413),
        (b"GET /v1/check?a=" + b"x" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\nCookie: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
        (b"\x16\x03\x01", 400),
    ],
)
async def test_the_bytes_of_a_stranger_are_bounded(
    tmp_path: Path, sent: bytes, status: int
) -> None:
    assert MAX_BODY_BYTES == 65_536
    async with front(tmp_path) as made, await made.stream() as stream:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(sent)
        answer = await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer


async def test_a_head_with_large_cookies_is_taken(tmp_path: Path) -> None:
    cookie = b"Cookie: " + b"x" * 20_000
    async with front(tmp_path) as made, await made.stream() as stream:
        await stream.send_all(GET.replace(b"\r\n\r\n", b"\r\n" + cookie + b"\r\n\r\n"))
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")


async def test_a_slow_client_has_so_much_time(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with front(tmp_path) as made, await made.stream() as stream:
        await stream.send_all(GET[:20])
        began = trio.current_time()
        assert await stream.receive_some() == b""
        assert trio.current_time() - began == pytest.approx(REQUEST_S)


async def test_there_are_so_many_connections_and_a_host_has_half_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    async with front(tmp_path) as made:
        async with AsyncExitStack() as stack:
            for number in (1, 1, 2, 3):
                stream = await stack.enter_async_context(await made.stream(number))
                await stream.send_all(GET)
                assert await stream.receive_some()
                if number == 1:
                    first = stream
            # The first host has its half, and then there are no places at all.
            for number in (1, 4):
                async with await made.stream(number) as refused:
                    with suppress(trio.BrokenResourceError), trio.fail_after(5):
                        assert await refused.receive_some() == b""
            await first.send_all(GET)
            assert await first.receive_some()
        # Clients that have gone make room.
        answer = b""
        while not answer:
            async with await made.stream() as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(GET)
                    answer = bytes(await stream.receive_some())


async def test_open_requests_are_answered_when_the_daemon_stops(tmp_path: Path) -> None:
    async with front(tmp_path) as made:
        async with await made.stream() as idle, await made.stream() as begun:
            await begun.send_all(GET[:20])
            await idle.send_all(GET)
            answer = b""
            while not answer.endswith(b"]}"):
                answer += await idle.receive_some()
            made.stopping.set()
            with trio.fail_after(5):
                assert await idle.receive_some() == b""
                await begun.send_all(GET[20:])
                answer = b""
                while data := await begun.receive_some():
                    answer += data
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"connection: close" in answer.lower()
        with pytest.raises(OSError, match=r".*"):
            await made.stream()


async def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    async with front(tmp_path) as made:
        for address, key in (
            (made.tcp, f"requests.listen: cannot bind 127.0.0.1:{made.tcp[1]}"),
            (str(made.addresses[1]), "requests.listen: .*another daemon answers there"),
        ):
            with pytest.raises(ConfigError, match=key):
                await serve_requests(
                    made.datapath, [address], Turns(), clock=lambda: 0, stopping=trio.Event()
                )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    """An authority, and certificates that it has signed."""
    directory = tmp_path_factory.mktemp("tls")
    ca = authority(directory, "ca")
    return {
        "ca": ca,
        "server": signed(directory, "server", ca, "serverAuth"),
        "web": signed(directory, "web", ca, "clientAuth"),
    }


async def test_tls_uses_the_certificate_of_the_last_reload_and_names_the_caller(
    tmp_path: Path, files: dict[str, Certificate]
) -> None:
    ca = files["ca"]
    contexts = [of_files(files["server"], ca)]
    # Made before, because an idle connection does not stay for long.
    renewed = of_files(signed(tmp_path, "new", authority(tmp_path, "x"), "serverAuth"))
    async with front(tmp_path, tls=lambda: contexts[-1]) as made:
        query, counted = "/v1/check?namespace=other-than-api", made.datapath
        async with made.client(trusting(ca, files["web"])) as client:
            assert (await client.get("/v1/check?namespace=api")).status_code == 200
            assert {*counted.read(1, 1).flows} == {flow_of(counted, "web")}
            # A trusted proxy names its client, and a question its caller.
            forwarded = {"X-Forwarded-For": "192.0.2.9"}
            await client.get("/v1/check?namespace=api", headers=forwarded)
            await client.get("/v1/check?namespace=api&caller=bob")
            flows = {flow for flow, size in counted.read(1, 1).flows.items() if size}
            assert flows == {flow_of(counted, "192.0.2.9"), flow_of(counted, "bob")}
            for own in (made.client(trusting(ca)), made.client()):
                async with own:
                    with pytest.raises(httpx.TransportError):
                        await own.get(query)
            # Others are shown the new certificate, and the old connection stays.
            contexts.append(renewed)
            assert (await client.get(query)).status_code == 200
        async with made.client(trusting(ca)) as late:
            with pytest.raises(httpx.ConnectError):
                await late.get(query)
        # A unix socket is plain.
        path = made.addresses[1]
        assert isinstance(path, str)
        transport = httpx.AsyncHTTPTransport(uds=path)
        async with httpx.AsyncClient(transport=transport, base_url="http://drld") as local:
            assert (await local.get(query)).status_code == 200


def flow_of(datapath: RequestDatapath, caller: str) -> object:
    return datapath._flow(caller)


async def test_tls_offers_the_protocols_that_the_front_speaks(
    tmp_path: Path, files: dict[str, Certificate]
) -> None:
    context, trust = of_files(files["server"]), trusting(files["ca"])
    async with front(tmp_path, tls=lambda: context) as made:
        # A client of gRPC speaks HTTP/2 alone; one of HTTP may speak both, and asks over HTTP/1.1.
        for offers, spoken in ((["h2"], "h2"), (["h2", "http/1.1"], "http/1.1")):
            trust.set_alpn_protocols(offers)
            async with await made.stream() as stream:
                tls = trio.SSLStream(stream, trust, server_hostname="127.0.0.1")
                await tls.do_handshake()
                assert tls.selected_alpn_protocol() == spoken


async def test_a_handshake_has_the_time_of_a_request_and_a_pace(
    tmp_path: Path, files: dict[str, Certificate], autojump_clock: trio.testing.MockClock
) -> None:
    context = of_files(files["server"])
    async with front(tmp_path, tls=lambda: context) as made, AsyncExitStack() as stack:
        began = trio.current_time()
        for _ in range(20):
            stream = await stack.enter_async_context(await made.stream())
            await stream.send_all(b"\x16\x03\x01\x02\x00")
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        assert trio.current_time() - began == pytest.approx(REQUEST_S + 19 * server.HANDSHAKE_S)
