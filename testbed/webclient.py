"""The clients of all web servers, as one process of the testbed, in the sink.

An open loop: every request starts at its planned time, whether earlier ones have ended or not. It
has a connection of its own (HTTP/1.1 with `Connection: close`, as httperf and wget in 2007). Only
a request's own task waits for it. The lateness of each start is reported, so that a run with a slow
client process does not count.

A closed loop: each client asks for one object after another while it has work.

A request's report has the times of its SYN and of the object's last byte, and the bytes received.
Requests that were under way at the end have reports, too.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

import h11
import trio

from testbed import child
from testbed.workload import SizesTable

SERVER_PORT = 80

_READ = 1 << 16
_TCPI_OPT_SACK = 2
_LAST_NS = 100_000_000
"""Time for which the client goes on after the end, so that the last request may start late."""
_RESET, _PARTING = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
"""SO_LINGER: a broken-off request ends with a reset; all others end normally."""


@dataclass(slots=True)
class _Fetch:
    """One request and its outcome; times in ns from the start of the run."""

    size: int
    start_ns: int | None = None
    end_ns: int | None = None
    received: int = 0
    error: str | None = None


class _Site:
    """The clients of one server."""

    def __init__(self, job: dict[str, Any], begin_ns: int, step_ns: int, steps: int) -> None:
        self.name: str = job["name"]
        self.fetches: list[_Fetch] = []
        self.steps = [0] * steps
        self._job = job
        self._address = (job["address"], job["port"])
        self._begin_ns = begin_ns
        self._step_ns = step_ns

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._begin_ns

    async def _sleep_until(self, when_ns: int) -> None:
        await trio.sleep(max(when_ns - self._now_ns(), 0) / 1e9)

    async def open_loop(self) -> None:
        """Start every request at its time."""
        async with trio.open_nursery() as nursery:
            for start_ns, size in self._job["arrivals"]:
                fetch = _Fetch(size)
                self.fetches.append(fetch)
                await self._sleep_until(start_ns)
                nursery.start_soon(self._fetch, fetch)

    async def closed_loop(self, client: dict[str, Any]) -> None:
        """One client: ask for one object after another, while it has work."""
        rng = random.Random(client["seed"])
        sizes = SizesTable.model_construct(**self._job["sizes"])
        for begin_ns, end_ns in client["spans"]:
            await self._sleep_until(begin_ns)
            with trio.move_on_after((end_ns - self._now_ns()) / 1e9):
                while True:
                    fetch = _Fetch(sizes.draw(rng))
                    self.fetches.append(fetch)
                    await self._fetch(fetch)
                    if fetch.error is not None:
                        return

    def start(self, nursery: trio.Nursery) -> None:
        """Start all clients."""
        nursery.start_soon(self.open_loop)
        for client in self._job["clients"]:
            nursery.start_soon(self.closed_loop, client)

    async def _fetch(self, fetch: _Fetch) -> None:
        with trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            try:
                fetch.start_ns = self._now_ns()
                await connection.connect(self._address)
                await self._exchange(connection, fetch)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _PARTING)
            except (OSError, h11.ProtocolError) as error:
                fetch.error = str(error)

    async def _exchange(self, connection: trio.socket.SocketType, fetch: _Fetch) -> None:
        information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
        if not information[5] & _TCPI_OPT_SACK:
            raise OSError("selective acknowledgements were not agreed on")
        http = h11.Connection(h11.CLIENT)
        request = h11.Request(
            method="GET",
            target=f"/object/{fetch.size}",
            headers=[("Host", self._address[0]), ("Connection", "close")],
        )
        asked = (http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b"")
        await connection.send(asked)  # it fits into a new connection's buffer
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await connection.recv(_READ))
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise OSError(f"the server answered {event.status_code}")
            elif isinstance(event, h11.Data):
                self._count(fetch, len(event.data))
            elif isinstance(event, h11.EndOfMessage):
                if fetch.received != fetch.size:
                    raise OSError(f"{fetch.received} bytes instead of {fetch.size}")
                fetch.end_ns = self._now_ns()
                return

    def _count(self, fetch: _Fetch, count: int) -> None:
        fetch.received += count
        step = self._now_ns() // self._step_ns
        if 0 <= step < len(self.steps):
            self.steps[step] += count

    def report(self) -> dict[str, Any]:
        """The reports on all requests, in their order."""
        return {
            "name": self.name,
            "steps": self.steps,
            "fetches": [
                [fetch.start_ns, fetch.end_ns, fetch.size, fetch.received, fetch.error]
                for fetch in self.fetches
                if fetch.start_ns is not None
            ],
        }


def work() -> None:
    """Run all clients, from the start to the end of the run."""
    job = child.receive()
    step_ns: int = job["step_ns"]
    duration_ns: int = job["duration_ns"]
    child.send(ready=True, priority=child.raise_priority())
    begin_ns: int = child.receive()["start_ns"]
    sites = [_Site(site, begin_ns, step_ns, duration_ns // step_ns) for site in job["sites"]]

    async def run() -> None:
        left_ns = begin_ns + duration_ns + _LAST_NS - time.monotonic_ns()
        with trio.move_on_after(left_ns / 1e9):
            async with trio.open_nursery() as nursery:
                for site in sites:
                    site.start(nursery)

    trio.run(run)
    child.send(result=[site.report() for site in sites])


if __name__ == "__main__":
    child.main(work)
