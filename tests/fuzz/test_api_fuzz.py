"""Whatever is sent to the control socket, the daemon answers the next request."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control_fake import STATUS, FakeDaemon, client, served
from tests.examples import examples

REQUEST = b"GET /v1/limits/b HTTP/1.1\r\nHost: drld\r\nContent-Length: 3\r\n\r\nabc"
TOKENS = st.sampled_from(
    [
        *(b"GET", b"POST", b"HEAD", b"PRI", b" ", b"*", b"/v1/reload", b"/v1/limits/b/trace"),
        *(b"/%2e%2e/%ff", b"?a=b", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/2.0", b"\r\n", b"\r\n\r\n"),
        *(b"Host: x", b"Content-Length: 5", b"Content-Length: -1", b"Transfer-Encoding: chunked"),
        *(b"Connection: Upgrade", b"Upgrade: websocket", b"Upgrade: h2c", b"Expect: 100-continue"),
        *(b"HTTP2-Settings: AAMAAABk", b"SM\r\n\r\n", b"0\r\n\r\n", b"5\r\nabcde\r\n", b"\0" * 9),
    ]
)
NONSENSE = st.lists(TOKENS | st.binary(max_size=8), max_size=15).map(b"".join)


@st.composite
def mutated_requests(draw: st.DrawFn) -> bytes:
    request = REQUEST
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(request)))
        end = start + draw(st.integers(0, 6))
        request = request[:start] + draw(NONSENSE) + request[end:]
    return request


async def send_and_look(messages: list[bytes], path: Path) -> None:
    with trio.fail_after(30):
        async with served(FakeDaemon(), path):
            for message in messages:
                async with await trio.open_unix_socket(str(path)) as stream:
                    with suppress(trio.BrokenResourceError):
                        await stream.send_all(message)
                        with trio.move_on_after(0.005):  # Some answers have no end.
                            await stream.receive_some()
            async with client(path) as http_client:
                assert (await http_client.get("/v1/status")).json() == STATUS


@settings(max_examples=examples(40))
@given(st.lists(NONSENSE | mutated_requests(), min_size=1, max_size=8))
def test_nonsense_harms_no_other_client(messages: list[bytes]) -> None:
    with TemporaryDirectory() as directory:
        trio.run(send_and_look, messages, Path(directory) / "control.sock")
