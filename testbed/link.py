"""Emulated links: delay, loss, rate and queue on the egress of the router's interfaces.

All of them sit in the router's namespace, never in a source's. A packet that waits in a source's
namespace still belongs to its socket, and TCP's small-queue limit would throttle the sender.

Two ways of delaying, chosen by trying: `netem` where the kernel has it, otherwise a delay line
of our own (`testbed.delayline`). Rates are a token bucket filter (TBF) behind the delay, with a
queue that is finite. A rate is of IP-layer bytes: a size table takes the Ethernet header off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from drld.errors import DrldError
from testbed import ETHERNET_HEADER, MTU, TBF_BURST, netns
from testbed.crew import Child, Crew
from testbed.delay import LinkReport
from testbed.errors import HostError

_NETEM_LIMIT = 100_000
_LEAST_QUEUE_PACKETS = 10
SIZE_TABLE = ["stab", "overhead", str(-ETHERNET_HEADER), "linklayer", "ethernet"]
"""Arguments of tc by which a root qdisc, and those behind it, count IP-layer bytes."""
BACKENDS = ("auto", "netem", "delayline")


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link, for packets that leave through `device`."""

    device: str
    delay_ns: int
    loss: float = 0.0
    rate: int | None = None
    """Bytes/s; None is unlimited."""
    queue: int | None = None
    """Queue for the rate, bytes; None: the rate times `round_trip_ns`."""
    round_trip_ns: int = 0
    seed: int = 0


def queue_bytes(rate: int, queue: int | None, round_trip_ns: int) -> int:
    """The queue in bytes: as given, or the bandwidth-delay product, at least ten packets."""
    if queue is not None:
        return queue
    product = rate * round_trip_ns // 1_000_000_000
    return max(product, _LEAST_QUEUE_PACKETS * MTU)


def tbf_arguments(rate: int, queue: int, burst: int = TBF_BURST) -> list[str]:
    """Arguments of tc for a rate, bytes/s, a queue and a burst, bytes."""
    depth = str(max(burst, TBF_BURST))
    return ["tbf", "rate", f"{rate * 8}bit", "burst", depth, "limit", str(queue)]


def netem_arguments(link: Link) -> list[str]:
    """Arguments of tc for a link's delay and loss."""
    loss = ["loss", f"{link.loss:.6%}"] if link.loss else []
    delay = f"{link.delay_ns / 1000:.0f}us"
    return ["netem", "delay", delay, *loss, "limit", str(_NETEM_LIMIT)]


def delayline_rules(queues: dict[str, int]) -> str:
    """Input of iptables-restore: a queue for each outgoing device."""
    rules = [f"-A FORWARD -o {device} -j NFQUEUE --queue-num {queue}"
             for device, queue in queues.items()]  # fmt: skip
    return "\n".join(["*mangle", *rules, "COMMIT", ""])


class Links:
    """A way of emulating links: subclasses delay packets, and rates are by TBF behind the delay."""

    name: str
    _parent: ClassVar[list[str]]
    """Arguments of tc for TBF's place."""
    _size_table: ClassVar[list[str]] = []
    """The size table, if TBF is the root."""

    def __init__(self) -> None:
        self._namespace = ""
        self._links: dict[str, Link] = {}
        self._limited: set[str] = set()

    async def start(self, crew: Crew, namespace: str, links: tuple[Link, ...]) -> None:
        """Emulate the links in the router's namespace."""
        self._namespace = namespace
        self._links = {link.device: link for link in links}
        await self._delay(crew, links)
        for link in links:
            if link.rate is not None:
                self.set_rate(link.device, link.rate, link.queue)

    async def _delay(self, crew: Crew, links: tuple[Link, ...]) -> None:
        """Begin to delay and lose packets."""
        raise NotImplementedError

    async def stop(self) -> LinkReport | None:
        """End the emulation and report how exact it was; None if it is not measured."""
        return None

    def set_rate(self, device: str, rate: int | None, queue: int | None) -> None:
        """Change a link's rate, bytes/s, and its queue, bytes; None as in `Link`."""
        if rate is None:
            if device in self._limited:
                self._tc("delete", device, self._parent)
                self._limited.discard(device)
            return
        limit = queue_bytes(rate, queue, self._links[device].round_trip_ns)
        arguments = [*self._parent, *self._size_table, *tbf_arguments(rate, limit)]
        self._tc("replace", device, arguments)
        self._limited.add(device)

    def _tc(self, verb: str, device: str, arguments: list[str]) -> None:
        netns.run(["tc", "-netns", self._namespace, "qdisc", verb, "dev", device, *arguments])


class NetemLinks(Links):
    """Links by netem, which keeps no account of its own lateness; TBF as its child."""

    name = "netem"
    _parent: ClassVar[list[str]] = ["parent", "1:1"]

    async def _delay(self, crew: Crew, links: tuple[Link, ...]) -> None:  # noqa: ARG002 -- needs none
        for link in links:
            arguments = ["root", "handle", "1:", *SIZE_TABLE, *netem_arguments(link)]
            self._tc("replace", link.device, arguments)


class DelayLineLinks(Links):
    """Links by a delay line, TBF on the devices."""

    name = "delayline"
    _parent: ClassVar[list[str]] = ["root"]
    _size_table: ClassVar[list[str]] = SIZE_TABLE

    def __init__(self) -> None:
        super().__init__()
        self._child: Child | None = None
        self.priority = ""

    async def _delay(self, crew: Crew, links: tuple[Link, ...]) -> None:
        delayed = [link for link in links if link.delay_ns or link.loss]
        queues = {link.device: number for number, link in enumerate(delayed)}
        job = {
            "links": [
                {
                    "queue": queues[link.device],
                    "delay_ns": link.delay_ns,
                    "loss": link.loss,
                    "seed": link.seed,
                }
                for link in delayed
            ]
        }
        self._child = await crew.start_module("delay line", self._namespace, "delayline", job)
        self.priority = (await self._child.receive())["priority"]
        command = ["ip", "netns", "exec", self._namespace, "iptables-restore"]
        netns.run(command, stdin=delayline_rules(queues))

    async def stop(self) -> LinkReport | None:
        """See `Links`."""
        assert self._child is not None, "not started"
        await self._child.send({"stop": True})
        return LinkReport(**(await self._child.receive())["result"])


def kernel_has_netem() -> bool:
    """Whether the kernel has netem, by a try in a namespace of its own."""
    name = netns.namespace("probe")
    netns.run(["ip", "netns", "add", name])
    try:
        arguments = netem_arguments(Link("lo", 1_000_000))
        netns.run(["tc", "-netns", name, "qdisc", "add", "dev", "lo", "root", *arguments])
    except DrldError:
        return False
    finally:
        netns.remove([name])
    return True


def probed(backend: str) -> str:
    """The name of the links that `choose_links` chooses, so that runs need not probe again.

    Raises:
        HostError: netem is asked for, and the kernel has none.
    """
    with netns.workspace():
        return choose_links(backend).name


def choose_links(backend: str) -> Links:
    """The way of emulating links: `netem`, `delayline`, or `auto`, which prefers netem.

    Raises:
        HostError: netem is asked for, and the kernel has none.
    """
    if backend not in BACKENDS:
        raise HostError(f"link backend {backend!r}: one of {', '.join(BACKENDS)}")
    if backend == "delayline":
        return DelayLineLinks()
    if kernel_has_netem():
        return NetemLinks()
    if backend == "netem":
        raise HostError("this kernel has no netem (CONFIG_NET_SCH_NETEM)")
    return DelayLineLinks()
