"""Three daemons with a limit for each user, in a namespace, and the clients that ask them.

The daemons have addresses of the namespace's loopback. Clients ask over unix sockets, which no
fault of the network touches.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx
import trio

from drld.requests.buckets.gcra import admit
from drld.requests.buckets.policy import Policy
from testbed.local_fleet import PORT, LocalFleet

NODES = 3
CAPACITY, RATE_S = 60, 5
"""The burst of each key, and its rate, tokens/s."""
DEMAND_S = 30
"""Alice's requests a second, at all limiters together."""
BUCKET = Policy(CAPACITY, RATE_S)
DELTAS_PORT = PORT + 1
_TABLES = f"""
[requests]
listen = "{{directory}}/{{own}}.front"
[[limit]]
id = 1
name = "user"
rate = "{RATE_S}/s"
burst = {CAPACITY}
match = {{{{ namespace = "api", per = "user" }}}}
"""


@dataclass
class Log:
    """The clients' record of their requests."""

    admitted: list[tuple[float, int]] = field(default_factory=list)
    """The time of each admitted request of alice's, and the limiter that admitted it."""
    asked: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    bob_refused: int = 0

    def excess(self, since_s: float = 0.0) -> float:
        """The largest level of one exact bucket beyond its capacity, from a time on."""
        tat, worst = 0, 0.0
        for at_s, _ in sorted(self.admitted):
            now = round(at_s * 1e9) * BUCKET.rate
            tat = admit(BUCKET, tat, now, 1)
            if at_s >= since_s:
                worst = max(worst, (tat - now) / BUCKET.per_ns - CAPACITY)
        return worst


class Scene(LocalFleet):
    """Three daemons in a namespace, and their clients."""

    def __init__(self, directory: Path, name: str, environment: Mapping[str, str]) -> None:
        """See `LocalFleet`."""
        tables = [_TABLES.format(directory=directory, own=own) for own in range(NODES)]
        super().__init__(directory, name, tables, environment)
        self.answered = Log()
        self.clients: list[httpx.AsyncClient] = []
        self.asking = True
        self.thawed_s = [0.0] * NODES
        """The time since which each daemon runs again; it decided nothing in its pause."""
        self.gone_bytes = 0
        """The bytes that killed daemons had sent."""
        self.hostile = 0
        """Datagrams that an attacker sent."""

    async def told(self, own: int) -> bool:
        """Whether all peers of a daemon are in contact."""
        found = await self.control(own, "/v1/limits/user/keys")
        return bool(found["peers"] == NODES - 1)

    async def rejected(self, own: int) -> dict[str, int]:
        """Datagrams that a daemon's socket of deltas refused, by reason."""
        found: dict[str, int] = (await self.control(own, "/v1/status"))["deltas"]["rejected"]
        return found

    async def said_bytes(self, own: int) -> int:
        """The bytes of IP packets that a daemon reports as sent: gossip and deltas."""
        status = await self.control(own, "/v1/status")
        return int(status["gossip"]["bytes_sent"] + status["deltas"]["bytes_sent"])

    async def bytes_sent(self) -> tuple[int, int]:
        """The bytes of IP packets that the interface has sent, and that the daemons report."""
        said = sum([await self.said_bytes(own) for own in range(NODES)]) + self.gone_bytes
        # Loopback counts IP packets, without a header of Ethernet.
        return int(self.inside("cat", "/sys/class/net/lo/statistics/tx_bytes")), said

    async def ask_again_and_again(self, own: int, user: str, every_s: float, rng: Random) -> None:
        """One client: requests at random times, whatever the answers."""
        while self.asking:
            await trio.sleep(rng.expovariate(1 / every_s))
            await self.ask(own, user)

    async def ask(self, own: int, user: str) -> None:
        """Ask once, and note the answer."""
        begin_s = time.monotonic()
        try:
            answer = await self.clients[own].get(query(user, 1))
        except httpx.TransportError:
            self.answered.failed += 1
            return
        begin_s, end_s = max(begin_s, self.thawed_s[own]), time.monotonic()
        self.answered.asked += 1
        self.answered.slowest_s = max(self.answered.slowest_s, end_s - begin_s)
        admitted = answer.status_code == 200
        if user == "bob":
            self.answered.bob_refused += not admitted
        elif admitted:
            self.answered.admitted.append(((begin_s + end_s) / 2, own))


def query(user: str, cost: int) -> str:
    """The question about a request of a user."""
    return f"/v1/check?namespace=api&user={user}&cost={cost}"


@asynccontextmanager
async def scene(directory: Path, name: str, environment: Mapping[str, str]) -> AsyncIterator[Scene]:
    """Three daemons that know each other; in the end all are gone."""
    found = Scene(directory, name, environment)
    async with AsyncExitStack() as stack:
        for own in range(NODES):
            transport = httpx.AsyncHTTPTransport(
                uds=str(directory / f"{own}.front"),
                limits=httpx.Limits(max_connections=None),
            )
            client = httpx.AsyncClient(transport=transport, base_url="http://drld", timeout=30)
            found.clients.append(await stack.enter_async_context(client))
        await stack.enter_async_context(found.running())
        for own in range(NODES):
            while not await found.told(own):
                await trio.sleep(0.05)
        yield found
        found.asking = False
