"""Three limiters in front of three brokers, their publishers, and counters at the brokers.

All limiters share one limit, whose publishers want more than it lets through. Each broker has
another topic, whose limit never binds: the delays of its messages say how late everything is.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random

import httpx
import trio

from testbed import netns
from testbed.chaos.message_clients import Counter, Publisher
from testbed.chaos.message_log import Log
from testbed.chaos.shares import NONE, Part, Shares
from testbed.messages.real.frames import Protocol
from testbed.messages.real.stage import Limit, Stage
from testbed.messages.servers import Server, mosquitto, nats_server

NODES = 3
RATE, BURST = 300, 60
"""Rate and burst of the limit, messages/s and messages."""
PUBLISHERS = 5
"""Publishers of the limited topic, at each limiter."""
OTHER_RATE = 40
"""Messages/s of another topic at each limiter, evenly spaced."""
OTHER_LIMIT = 100_000
"""Messages/s that these may have: more than they need."""
OTHER = 1000
"""Number of the first of its publishers."""
HOLD_MIB = 1
MOST_CONNECTIONS = 60
TOPICS: dict[Protocol, dict[str, str]] = {
    "mqtt": {"limited": "chaos/limited", "other": "chaos/other", "bulk": "bulk", "all": "chaos/#"},
    "nats": {"limited": "chaos.limited", "other": "chaos.other", "bulk": "bulk", "all": "chaos.>"},
}
_BUFFER_BYTES = 65_536
_SMALL = "size=64k,mode=0755"
_PERSISTENT = """
persistence true
persistence_location {disk}/
autosave_interval 1
"""
_PINGING = 'ping_interval: "{pings_s}s"\nping_max: 2\n'
"""After the third ping without an answer, a NATS server takes a client for gone."""


class Scene(Stage):
    """Limiters, brokers and clients, in a namespace."""

    def __init__(self, directory: Path, protocol: Protocol, window_s: float, pings_s: int) -> None:
        """`window_s`: the history of `adaptive`; `pings_s`: between two pings of NATS servers."""
        self.pings_s = pings_s
        self.topics = TOPICS[protocol]
        history = {"name": "adaptive", "window": window_s}
        limits = {"limited": Limit(RATE, BURST, history), "other": Limit(OTHER_LIMIT, 10_000)}
        super().__init__(
            directory, protocol, NODES,
            {name: (self.topics[name], limit) for name, limit in limits.items()},
            hold=f"{HOLD_MIB}MiB", max_connections=MOST_CONNECTIONS,
        )  # fmt: skip
        self.window_s = window_s
        self.published = Log()
        self.shares = Shares()
        self.brokers: list[Server] = []
        self.counters: list[Counter] = []
        self.limited: list[list[Publisher]] = []
        """The publishers, by their first limiter."""
        self.other: list[Publisher] = []
        self.stops = [trio.Event() for _ in range(NODES)]
        """Set when no more is published on the limited topic at a limiter."""
        self.stop = trio.Event()
        """Set when no more is published on the others."""

    def disk(self, own: int) -> Path:
        """The folder in which a broker keeps its messages."""
        return self.directory / f"disk{own}"

    def start_brokers(self, stack: AsyncExitStack) -> None:
        """Start all brokers."""
        for own, (host, port) in enumerate(self.servers):
            disk = self.disk(own)
            disk.mkdir(exist_ok=True)
            if self.protocol == "mqtt":
                lines = _PERSISTENT.format(disk=disk)
                made = mosquitto(self.directory, port, lines, host=host, namespace=self.namespace)
            else:
                file = self.directory / "nats.conf"
                file.write_text(_PINGING.format(pings_s=self.pings_s))
                made = nats_server(
                    self.directory, port, "-c", str(file), host=host, namespace=self.namespace
                )
            self.brokers.append(stack.enter_context(made))

    def start_clients(self, nursery: trio.Nursery, demand: float, rng: Random) -> None:
        """Begin to publish: the limited topic at `demand` times its rate, and the others."""

        def may_connect(front: tuple[str, int]) -> bool:
            return self.counters[int(front[0].rpartition(".")[2]) - 1].subscribed

        def publisher(own: int, number: int, topic: str) -> Publisher:
            made = Publisher(
                self.protocol, self.fronts[own], self.topics[topic], number, log=self.published,
                may_connect=may_connect,
            )  # fmt: skip
            nursery.start_soon(made.run)
            return made

        for own, broker in enumerate(self.brokers):
            address = broker.host, broker.port
            counter = Counter(self.protocol, address, self.topics["all"], self.published)
            self.counters.append(counter)
            nursery.start_soon(counter.run)
            first = own * PUBLISHERS
            self.limited.append(
                [publisher(own, first + place, "limited") for place in range(PUBLISHERS)]
            )
            rate = demand * RATE / NODES / PUBLISHERS
            for one in self.limited[-1]:
                nursery.start_soon(one.keep_publishing, rate, Random(rng.random()), self.stops[own])
            self.other.append(publisher(own, OTHER + own, "other"))
            nursery.start_soon(self.other[-1].keep_publishing, OTHER_RATE, None, self.stop)
            nursery.start_soon(self._watch, own)

    async def drained(self) -> None:
        """Publish no more, and wait until all messages are confirmed."""
        for stop in (self.stop, *self.stops):
            stop.set()
        everyone = [*self.other, *(one for those in self.limited for one in those)]
        while any(one.unconfirmed for one in everyone):
            await trio.sleep(0.05)

    async def _watch(self, own: int) -> None:
        """Take down the parts that a limiter has, from its trace, until cancelled."""
        while True:
            with suppress(httpx.HTTPError):
                async with (
                    self.client(own) as client,
                    client.stream("GET", "/v1/limits/limited/trace", timeout=None) as trace,
                ):
                    async for line in trace.aiter_lines():
                        tick = json.loads(line)
                        part = Part(tick["fill_rate_bps"], tick["depth_bytes"] or 0.0)
                        self.shares.note(tick["t"], own, part)
            await trio.sleep(0.01)

    async def kill(self, own: int) -> None:
        """See `LocalFleet.kill`."""
        await super().kill(own)
        self.without(own)

    def without(self, own: int) -> None:
        """Take in that a limiter lets nothing through from now on, until its next tick."""
        self.shares.note(time.time(), own, NONE)

    @contextmanager
    def small_disks(self) -> Iterator[None]:
        """Keep the messages of the first broker, and the changes of its daemon, on small disks.

        Before they start: `ip netns exec` gives each process the mounts of that time.
        """
        places = self.small
        for place in places:
            place.mkdir()
            netns.run(["mount", "-t", "tmpfs", "-o", _SMALL, "none", str(place)])
        try:
            yield
        finally:
            for place in places:
                netns.run(["umount", "--lazy", str(place)], check=False)

    @property
    def small(self) -> list[Path]:
        """The folders on the small disks."""
        return [self.disk(0), self.file(0).with_suffix(".toml.d")]

    async def connections(self, own: int) -> int:
        """The connections of clients that a limiter has."""
        return int((await self._counters(own))["broker_connections"])

    async def refused(self, own: int) -> int:
        """The connections that a limiter has refused."""
        return int((await self._counters(own))["broker_refused"])

    async def change(self, own: int, limit: str, keys: dict[str, str]) -> tuple[int, str]:
        """Change a limit, and keep the change; the status and the text of the answer."""
        async with self.client(own) as client:
            answer = await client.post(f"/v1/limits/{limit}/set", json={"set": keys, "save": True})
        return answer.status_code, answer.text

    async def _counters(self, own: int) -> dict[str, int]:
        found: dict[str, int] = (await self.control(own, "/v1/status"))["datapath"]["counters"]
        return found

    def resident_mib(self, own: int) -> float:
        """The most memory that a daemon has had since `forget_memory`, MiB."""
        status = Path(f"/proc/{self.process(own).pid}/status").read_text(encoding="ascii")
        (peak,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(peak) / 1024

    def forget_memory(self, own: int) -> None:
        """Let the peak of a daemon's memory begin with what it is now."""
        Path(f"/proc/{self.process(own).pid}/clear_refs").write_text("5", encoding="ascii")


@asynccontextmanager
async def scene(found: Scene, demand: float, rng: Random) -> AsyncIterator[Scene]:
    """All of it at work; in the end all are gone."""
    async with AsyncExitStack() as stack:
        stack.enter_context(found.small_disks())
        await stack.enter_async_context(found.running())
        # Little of a flood waits in the kernel, whose buffers grow otherwise.
        found.inside("sysctl", "-qw", f"net.ipv4.tcp_rmem=4096 {_BUFFER_BYTES} {_BUFFER_BYTES}")
        stack.enter_context(netns.entered(found.namespace))
        found.start_brokers(stack)
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        found.start_clients(nursery, demand, rng)
        yield found
