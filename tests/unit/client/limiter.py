"""A front of requests in a thread of its own, for clients that block or have another event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLContext

import trio

from drld.control.turns import Turns
from drld.requests.datapath import RequestDatapath
from drld.requests.front.server import serve_requests
from drld.requests.spec import Address

from ..requests.made import bucket, limit, limited, of_plan


def few() -> RequestDatapath:
    """Limits that never fill: 5 requests of a namespace, 2 of a plan."""
    return limited((limit(), bucket(5)), (of_plan(2), bucket(2)))


@contextmanager
def limiter(
    path: Path,
    datapath: RequestDatapath | None = None,
    tls: Callable[[], SSLContext | None] = lambda: None,
) -> Iterator[tuple[str, str]]:
    """One that answers on a unix socket, and on a TCP address; both as a client takes them."""
    listen: list[Address] = [str(path), ("127.0.0.1", 0)]
    made = datapath or few()
    started = threading.Event()
    found: list[Address] = []
    token: list[trio.lowlevel.TrioToken] = []
    stopping: list[trio.Event] = []

    async def main() -> None:
        token.append(trio.lowlevel.current_trio_token())
        stopping.append(trio.Event())
        async with trio.open_nursery() as nursery:

            async def serve(
                task_status: trio.TaskStatus[list[Address]] = trio.TASK_STATUS_IGNORED,
            ) -> None:
                await serve_requests(
                    made, listen, Turns(), clock=time.monotonic_ns, stopping=stopping[0], tls=tls,
                    task_status=task_status,
                )  # fmt: skip

            found.extend(await nursery.start(serve))
            started.set()

    thread = threading.Thread(target=trio.run, args=(main,), daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        address = found[1]
        assert isinstance(address, tuple)
        host, port = address
        yield str(path), f"{host}:{port}"
    finally:
        token[0].run_sync_soon(stopping[0].set)
        thread.join(30)
        assert not thread.is_alive()
