"""Fleets of limiters in virtual time that decide requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

from drld.engine import Engine
from drld.model import NS_PER_S
from drld.planes.plane import Plane
from drld.requests.datapath import RequestDatapath
from drld.requests.model import Answer, Request
from drld.requests.spec import ITEM, REQUESTS, Excess, RequestMatch
from drld.spec import LimiterSpec, LimitSpec
from testbed.sim.mailbox import Datagram, Mailbox
from testbed.sim.network import MS, Conditions, Network
from testbed.tcp.clock import Clock

from ..factories import TICK_NS, gossip_spec, limit_spec, limiter_spec

API = Request("api", {})


def request_limit(allocator: str = "fair", *, rate: float = 100, **changes: object) -> LimitSpec:
    """A limit on the requests of the namespace `api`, in requests/s."""
    defaults: dict[str, object] = {
        "rate": int(rate * ITEM),
        "burst": round(rate) * ITEM,
        "unit": REQUESTS,
        "excess": Excess.REFUSE,
        "match": RequestMatch("api"),
    }
    return limit_spec(allocator, **{**defaults, **changes})


class RequestNode:
    """A limiter with an engine whose plane is that of requests, unless another is given."""

    def __init__(
        self, spec: LimiterSpec, clock: Clock, network: Network[Datagram], plane: Plane | None
    ) -> None:
        self.datapath = RequestDatapath(Random(spec.name), spec.name.encode())
        self.mailbox = Mailbox(spec.name, clock, network)
        self.engine = Engine(
            spec, [plane or Plane(RequestMatch, self.datapath)], self.mailbox, Random(spec.name)
        )
        self._clock = clock
        self.admitted: Counter[str] = Counter()
        """Requests admitted since the last `clear`, by caller."""
        self.engine.start(clock.now_ns)
        clock.at(self.engine.next_due_ns(), self._tick)

    def _tick(self, _: None) -> None:
        self.engine.tick(self._clock.now_ns)
        self._clock.at(self.engine.next_due_ns(), self._tick)

    def ask(self, caller: str, request: Request = API) -> Answer:
        """Decide about a request of a caller now."""
        answer = self.datapath.decide(request._replace(caller=caller), self._clock.now_ns)
        self.admitted[caller] += answer.admitted
        return answer


class RequestFleet:
    """Limiters l0, l1, ... of the same limits, under one virtual clock."""

    def __init__(
        self,
        limits: Sequence[Sequence[LimitSpec]],
        *,
        planes: Sequence[Plane | None] = (),
        fabric: str = "mesh",
    ) -> None:
        """Start all limiters; `limits` are those of each."""
        self.clock = Clock(0)
        self.network: Network[Datagram] = Network(1, Conditions(delay_ns=MS))
        names = [f"l{number}" for number in range(len(limits))]
        own = [*planes, *[None] * (len(limits) - len(planes))]
        self.nodes = [
            RequestNode(
                limiter_spec(
                    *its,
                    name=name,
                    peers=[peer for peer in names if peer != name],
                    gossip=replace(gossip_spec(fabric), interval_ns=TICK_NS),
                ),
                self.clock,
                self.network,
                plane,
            )
            for name, its, plane in zip(names, limits, own, strict=True)
        ]

    def callers(
        self, node: RequestNode, names: Sequence[str], rate: float, request: Request = API
    ) -> None:
        """Have each of these callers ask so many times a second, whatever it is answered."""
        gap_ns = round(NS_PER_S / rate)
        for number, name in enumerate(names):
            first_ns = self.clock.now_ns + gap_ns * number // len(names) + number
            self.clock.at(first_ns, partial(self._ask, node, name, gap_ns, request))

    def _ask(self, node: RequestNode, name: str, gap_ns: int, request: Request, _: None) -> None:
        node.ask(name, request)
        again = partial(self._ask, node, name, gap_ns, request)
        self.clock.at(self.clock.now_ns + gap_ns, again)

    def run(self, seconds: float) -> None:
        """Let time pass, and count what is admitted from its begin on."""
        for node in self.nodes:
            node.admitted.clear()
        self.clock.run(self.clock.now_ns + round(seconds * NS_PER_S))
