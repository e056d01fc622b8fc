"""Middleware and decorators, with a limiter over real sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from drld.client import Client, RateLimitedError, asgi, limited, on_asyncio, on_trio, wsgi
from drld.client.protocol.http_fields import caller_of, fields
from drld.client.protocol.limit_table import LimitTable, key_text
from drld.client.protocol.model import Answer

from .limiter import few, limiter
from .test_degraded import API


def plan(header: str | None) -> dict[str, str] | None:
    return None if header == "none" else {} if header is None else named(header)


def named(plan: str) -> dict[str, str]:
    """The pairs of a plan: too many for a mistake, and a long value is none."""
    return (
        dict.fromkeys("123456789", "") if plan == "mistake" else {"plan": plan, "user": "a" * 300}
    )


def of_scope(scope: asgi.Scope) -> dict[str, str] | None:
    return plan(dict(scope["headers"]).get(b"plan", b"").decode() or None)


def of_environ(environ: wsgi.Environ) -> dict[str, str] | None:
    return plan(environ.get("HTTP_PLAN"))


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def greet(environ: wsgi.Environ, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("content-type", "text/plain")])
    return [b"hello"]


def check_answers(answers: list[httpx.Response]) -> None:
    """Check six answers: to the namespace, three of a plan, a mistake, and an unlimited one."""
    first, free, _, refused, mistaken, unlimited = answers
    assert [it.status_code for it in answers] == [200, 200, 200, 429, 400, 200]
    assert first.text == unlimited.text == "hello"
    assert first.headers["ratelimit-policy"] == '"limit-1";q=100;w=1'
    assert first.headers["ratelimit"] == '"limit-1";r=4'
    assert free.headers["ratelimit"] == '"limit-2";r=1'
    assert refused.json() == {"error": "above the limit limit-2"}
    assert refused.headers["ratelimit"] == '"limit-2";r=0'
    assert "8 pairs at most" in mistaken.json()["error"]
    assert "ratelimit" not in unlimited.headers


PLANS = (None, "free", "free", "free", "mistake", "none")


async def _get(transport: httpx.AsyncBaseTransport) -> list[httpx.Response]:
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as http:
        return [await http.get("/", headers={"plan": it} if it else {}) for it in PLANS]


@pytest.mark.parametrize("kind", [on_asyncio, on_trio])
def test_asgi_middleware_refuses_before_the_application(tmp_path: Path, kind: Any) -> None:
    datapath = few()

    async def main() -> None:
        async with kind.Client(unix, timeout_s=60) as client:
            app = Starlette(routes=[Route("/", hello)])
            app.add_middleware(
                asgi.RateLimitMiddleware, client=client, namespace="api", descriptor=of_scope
            )
            check_answers(await _get(httpx.ASGITransport(app, client=("2001:db8::1", 1))))

    with limiter(tmp_path / "socket", datapath) as (unix, _):
        (asyncio if kind is on_asyncio else trio).run(main() if kind is on_asyncio else main)
    assert len(datapath.read(1, 1).flows) == 1


def test_wsgi_middleware_refuses_before_the_application_under_a_server(tmp_path: Path) -> None:
    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: object) -> None: ...

    with limiter(tmp_path / "socket") as (unix, _), Client(unix, timeout_s=60) as client:
        app = wsgi.RateLimitMiddleware(greet, client=client, namespace="api", descriptor=of_environ)
        with make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}") as http:
                    check_answers(
                        [http.get("/", headers={"plan": it} if it else {}) for it in PLANS]
                    )
            finally:
                server.shutdown()
                thread.join()


def test_wsgi_middleware_refuses_head_without_a_body() -> None:
    absent = Client("/absent", on_failure="closed")
    app = wsgi.RateLimitMiddleware(greet, client=absent, namespace="api")
    for method in ("GET", "HEAD"):
        body = app({"REQUEST_METHOD": method}, lambda *_: lambda _: None)
        assert bool(b"".join(body)) == (method == "GET")


def test_the_fields_hold_only_a_limiters_statements() -> None:
    table = LimitTable((API,), 1)
    assert fields(Answer(True, 1, "api", 3.5, 0.2), table, {}) == [
        ("ratelimit-policy", '"api";q=100;w=1'), ("ratelimit", '"api";r=3;t=1'),
    ]  # fmt: skip
    assert fields(Answer(True, 1, "api", 3.5), None, {}) == []
    assert fields(Answer(False, 0, "api", None, None, 0.3, degraded=True), table, {}) == [
        ("retry-after", "1")
    ]
    paused = Answer(True, 1, "api", None)
    assert fields(paused, table, {}) == [("ratelimit-policy", '"api";q=100;w=1')]
    user = replace(API, per=("user",), overrides={key_text(["bigco"]): (5, 60)})
    table = LimitTable((user,), 1)
    answer = Answer(True, 1, "api", None)
    assert fields(answer, table, {"user": "bigco"}) == [("ratelimit-policy", '"api";q=5;w=60')]
    assert fields(answer, table, {"user": "bob"}) == [("ratelimit-policy", '"api";q=100;w=1')]
    assert fields(answer, table, {}) == []
    many = LimitTable((replace(user, overrides=None),), 1)
    assert fields(answer, many, {"user": "bob"}) == []
    hosts = ("192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1:2:3", "", "testclient")
    assert [caller_of(it) for it in hosts] == [
        "192.0.2.1", "192.0.2.1", "2001:db8::/64", "", "testclient",
    ]  # fmt: skip


def test_a_decorator_asks_the_fleet_and_compares_its_rate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with limiter(tmp_path / "socket") as (unix, _), Client(unix, timeout_s=60) as client:

        @limited("api", "7/minute", client=client, key=named, cost=2)
        def work(name: str) -> str:
            return name

        assert [work("free"), work("paid")] == ["free", "paid"]
        with pytest.raises(RateLimitedError, match="above the limit limit-1") as error:
            work("free")
        assert error.value.retry_after_s is None
        with pytest.raises(RateLimitedError, match="8 pairs at most"):
            work("mistake")
        # The client reads the limits from time to time, and they are the same.
        known = client.limits
        client._availability._due_ns = None
        with pytest.raises(RateLimitedError):
            work("free")
        assert client.limits is not known
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == (
            "namespace api: a decorator says 7/minute, and the fleet has other rates: "
            "limit-1: 100 in 1 s, limit-2: 100 in 1 s"
        )

        # The fleet has no such limit: the process keeps the rate by itself, for each key.
        @limited("mail", "2/hour", client=client, key=lambda user: {"user": user})
        def mail(user: str) -> None: ...

        for user in "ab":
            mail(user)
            mail(user)
            with pytest.raises(RateLimitedError, match="above the limit 2/hour") as error:
                mail(user)
        assert error.value.retry_after_s == pytest.approx(1800, abs=60)


def test_a_decorator_keeps_to_a_limit_that_is_newer_than_the_known_ones(tmp_path: Path) -> None:
    """A client reads the limits twice a minute; an answer names its limit at once."""
    with limiter(tmp_path / "socket") as (unix, _), Client(unix, timeout_s=60) as client:
        client.check("api", cost=3)
        client._availability.learn(LimitTable((), 1))

        @limited("api", "100/s", client=client)
        def work() -> None: ...

        work()
        work()
        with pytest.raises(RateLimitedError, match="above the limit limit-1"):
            work()


def test_a_decorator_without_a_limiter_keeps_its_rate(tmp_path: Path) -> None:
    @limited("mail", "3/hour")
    def alone() -> None: ...

    @limited("mail", "3/hour", client=Client(str(tmp_path / "absent")))
    def unreached() -> None: ...

    for function in (alone, unreached):
        for _ in range(3):
            function()
        with pytest.raises(RateLimitedError):
            function()


@pytest.mark.parametrize(
    ("rate", "burst", "again_s"),
    [("1/day", 1, 86_400), ("1/30 days", 1, 30 * 86_400), ("7/s", 7, 1 / 7)],
)
def test_a_decorator_keeps_a_slow_rate_exactly(
    monkeypatch: pytest.MonkeyPatch, rate: str, burst: int, again_s: float
) -> None:
    @limited("mail", rate)
    def work() -> None: ...

    monkeypatch.setattr("drld.client.decorator.monotonic_ns", lambda: 10**9)
    for _ in range(burst):
        work()
    with pytest.raises(RateLimitedError) as refused:
        work()
    assert refused.value.retry_after_s == pytest.approx(again_s, abs=1e-8)


def test_a_decorator_keeps_users_apart_whatever_their_names_are() -> None:
    @limited("mail", "1/hour", key=lambda user, to: {"user": user, "to": to})
    def mail(user: str, to: str) -> None: ...

    mail("1ÿtoÿ2", "3")
    mail("1", "2ÿtoÿ3")
    with pytest.raises(RateLimitedError):
        mail("1", "2ÿtoÿ3")


def test_a_decorator_takes_coroutine_functions(tmp_path: Path) -> None:
    async def main() -> None:
        async with on_asyncio.Client(unix, timeout_s=60) as client:

            @limited("api", "100/s", client=client)
            async def work() -> int:
                return 3

            assert [await work() for _ in range(5)] == [3] * 5
            with pytest.raises(RateLimitedError, match="limit-1"):
                await work()
            with pytest.raises(TypeError, match="must be one for a function that is no"):
                limited("api", "1/s", client=client)(lambda: None)

    with limiter(tmp_path / "socket") as (unix, _):
        asyncio.run(main())
    with pytest.raises(ValueError, match="must be a rate"):
        limited("api", "often")
