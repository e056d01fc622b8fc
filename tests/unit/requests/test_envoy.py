"""The stock Envoy before an application, with the configuration of docs/requests-envoy.md."""

from __future__ import annotations

import re
import signal
import sys
from functools import partial
from pathlib import Path

import httpx
import trio

from drld.requests.spec import ITEM, RequestMatch
from drld.units import BYTES
from tests.local_daemons import ports

from .fronts import front
from .made import bucket, limit, limited, of_plan

PAGE = Path(__file__).resolve().parents[3] / "docs" / "requests-envoy.md"
ENVOY = Path(sys.prefix, "bin", "envoy")
BODY = b"through"
TRACING = """
          tracing:
            provider:
              name: envoy.tracers.opentelemetry
              typed_config:
                "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                grpc_service: { envoy_grpc: { cluster_name: drld } }
                service_name: proxy
"""
"""With it, Envoy's questions have headers of its clients."""


async def backend(stream: trio.SocketStream) -> None:
    """Answers each request on a connection."""
    async with stream:
        while await stream.receive_some():
            await stream.send_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
            )


def configuration(open_port: int, closed_port: int, drld: int, application: int) -> str:
    """The page's configuration, with a second listener that denies while drld does not answer."""
    text: str
    (text,) = re.findall(r"^```yaml\n(static.*?)^```", PAGE.read_text(), re.M | re.S)
    (token, charge) = re.findall(r"^```yaml\n( .*?)^```", PAGE.read_text(), re.M | re.S)
    # A header in two entries makes a message that is larger than drld reads.
    again = token.replace("descriptor_key: token", "descriptor_key: again")
    for old, new in (
        (
            "                    - remote_address: {}\n",
            f"                    - remote_address: {{}}\n{token}{again}",
        ),
        ("          http_filters:\n", f"{charge}          http_filters:\n"),
        ("          route_config:\n", f"{TRACING}          route_config:\n"),
        ("timeout: 0.05s", "timeout: 60s"),
        ("port_value: 8099", f"port_value: {drld}"),
        ("port_value: 8080", f"port_value: {application}"),
        ("port_value: 10000", f"port_value: {open_port}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    start, end = text.index("  - address:"), text.index("  clusters:")
    second = text[start:end].replace(f"{open_port}", f"{closed_port}")
    denying = second.replace("failure_mode_deny: false", "failure_mode_deny: true")
    assert denying != second
    return text[:end] + denying + text[end:]


async def test_envoy_asks_before_it_passes_a_request_on(tmp_path: Path) -> None:
    assert ENVOY.exists(), "run scripts/setup, which fetches Envoy"
    on_bytes = limit(2, unit=BYTES, burst=10_000, match=RequestMatch("api", {"counts": "bytes"}))
    datapath = limited((of_plan(1, rate=0.5, burst=20 * ITEM), bucket(2)), (on_bytes, bucket(0.01)))
    opened, denying = ports(2, trio.socket.SOCK_STREAM)
    async with front(tmp_path, datapath) as made, trio.open_nursery() as nursery:
        (served,) = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), backend, 0)
        application = served.socket.getsockname()[1]
        file = tmp_path / "envoy.yaml"
        file.write_text(configuration(opened, denying, made.tcp[1], application))
        command = [ENVOY, "-c", file, "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
        process = await nursery.start(trio.run_process, [str(it) for it in command])
        with trio.fail_after(600):
            async with httpx.AsyncClient(timeout=60) as client:

                async def get(
                    plan: str | None = "free", port: int = opened, **more: bytes
                ) -> httpx.Response:
                    headers = {**({} if plan is None else {b"x-plan": plan.encode()})}
                    headers |= {name.replace("_", "-").encode(): it for name, it in more.items()}
                    return await client.get(f"http://127.0.0.1:{port}/", headers=headers)

                answer = None
                while answer is None:
                    try:
                        answer = await get(plan=None)
                    except httpx.ConnectError:
                        assert process.returncode is None
                assert (answer.status_code, answer.content) == (200, BODY)
                assert "ratelimit" not in answer.headers
                answers = [await get() for _ in range(3)]
                assert [it.status_code for it in answers] == [200, 200, 429]
                assert answers[0].headers["x-ratelimit-limit"] == '30, 30;w=60;name="limit-1"'
                assert answers[0].headers["x-ratelimit-remaining"] == "1"
                assert answers[0].headers["ratelimit-policy"] == '"limit-1";q=30;w=60'
                assert answers[0].headers["ratelimit"] == '"limit-1";r=1'
                assert answers[2].headers["x-envoy-ratelimited"] == "true"
                assert answers[2].headers["x-ratelimit-remaining"] == "0"
                # Nothing that a client sends gets around the limit.
                for token in (b"x" * 5000, b"\xff\xfe", b"x" * 64, b"short", b"x" * 40_000):
                    assert (await get(x_token=token)).status_code == 429
                parent = b"00-%s-%s-01" % (b"a" * 32, b"b" * 16)
                state = b"a=" + b"x" * 50_000
                assert (await get(traceparent=parent, tracestate=state)).status_code == 429
                assert (await get(plan="paid", x_token=b"x" * 5000)).status_code == 200
                # What has been sent is charged after each answer.
                charged = 0
                while charged < len(BODY) * 4:
                    charged += datapath.read(2, 0).forwarded_tokens
                    await trio.lowlevel.checkpoint()
                assert datapath.copy_of(2).bucket.tokens <= 10_000 - charged
                made.stopping.set()
                while (status := (await get()).status_code) == 429:
                    pass
                assert status == 200
                while (status := (await get(port=denying)).status_code) == 429:
                    pass
                assert status == 500
        process.send_signal(signal.SIGTERM)
        await process.wait()
        nursery.cancel_scope.cancel()
