"""An engine whose datapath and socket record what the engine asks of them, and do nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

from drld.capture.plane import packets
from drld.engine import Engine
from drld.errors import ConfigError, DatapathError
from drld.gossip.wire.control_codec import Control
from drld.gossip.wire.keyring import KeyRing
from drld.gossip.wire.messenger import Deliver
from drld.gossip.wire.session import Met
from drld.model import HEARTBEAT, Enforcement, FlowId, FlowKey, Measurement, Quantity, Update
from drld.spec import LimiterSpec, LimitSpec
from testbed.sim.datapath import MemoryDatapath

from .factories import TICK_NS, limit_spec
from .wire import kind_of, mesh


class FakeDatapath(MemoryDatapath):
    name = "fake"

    def __init__(self) -> None:
        super().__init__()
        self.programmed: list[tuple[int, Enforcement]] = []
        self.refuse = False
        self.shares: dict[int, Enforcement] = {}
        self.flushed_ns: list[int] = []
        self.attached: list[LimitSpec] = []
        self.read_limits: list[int] = []

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        if self.refuse:
            raise DatapathError("refused")
        limits = list(limits)
        self.attached = [limit for limit, _ in limits]
        super().attach(limits, now_ns)

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        self.read_limits.append(limit_id)
        return super().read(limit_id, now_ns)

    def program(
        self, limit_id: int, enforcement: Enforcement, evict: Iterable[FlowId], now_ns: int
    ) -> None:
        self.programmed.append((limit_id, enforcement))
        super().program(limit_id, enforcement, evict, now_ns)

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        self.shares[limit_id] = share

    def flush(self, now_ns: int) -> None:
        self.flushed_ns.append(now_ns)


class FakeTransport:
    def __init__(self) -> None:
        self.life = 1
        self.inbox: list[tuple[str, Update | Control | Met]] = []
        self.control: list[tuple[str, Control]] = []
        self.messages: list[tuple[str, list[Update]]] = []
        self.peers: Mapping[str, Any] = {}
        self.rejected: Counter[str] = Counter()
        self.other_versions: dict[str, int] = {}
        self.refused_kinds: dict[str, tuple[int, str]] = {}
        self.drained = True

    def refuse(self, reason: str) -> None:
        self.rejected[reason] += 1

    def receive(self, deliver: Deliver, refused: Mapping[int, str]) -> None:
        while self.inbox:
            peer, message = self.inbox.pop(0)
            kind = kind_of(message)
            if kind not in refused:
                deliver(peer, kind, [message] if isinstance(message, Update) else message)

    @property
    def outbox(self) -> list[tuple[str, Update]]:
        return [(peer, update) for peer, updates in self.messages for update in updates]

    def send(self, peer: str, kind: int, body: Any) -> None:
        if isinstance(body, Control):
            assert body.kind == kind
            self.control.append((peer, body))
        else:
            self.messages.append((peer, list(body)))

    def set_ring(self, ring: KeyRing) -> None:
        self.ring = ring

    def update_peers(self, peers: Mapping[str, Any]) -> Callable[[], None]:
        if "bad" in peers:
            raise ConfigError(["peer.bad.address"])
        undo = partial(setattr, self, "peers", self.peers)
        self.peers = peers
        return undo

    def close(self) -> None:
        pass


class Bench:
    def __init__(self, configured: LimiterSpec, *, start: bool = True) -> None:
        self.datapath = FakeDatapath()
        self.transport = FakeTransport()
        planes = [packets(self.datapath)]
        self.engine = Engine(configured, planes, self.transport, Random(1))
        if start:
            self.engine.start(0)

    def packet(self, limit_id: int) -> None:
        self.datapath.policers[limit_id].arrive(FlowKey(6, b"", b"", 0, 0), 1500)

    def run(self, first: int, last: int) -> list[str]:
        """Intervals from first to last; the names of the limits that were ticked."""
        ticks = [self.engine.tick(number * TICK_NS) for number in range(first, last + 1)]
        return [name for tick in ticks for name, _ in tick]

    def clear(self) -> None:
        """Clear the records of the datapath and the socket."""
        self.transport.messages.clear()
        self.datapath.read_limits.clear()
        self.datapath.programmed.clear()
        self.datapath.flushed_ns.clear()


FIRST = limit_spec(id=1, name="first")

SLOW = limit_spec(id=2, name="slow", interval_ns=4 * TICK_NS)


def weight(limit_id: int, sequence: int = 0) -> Update:
    return mesh(limit_id, sequence, 2.0, Quantity.WEIGHT)


def heartbeat(sequence: int = 0) -> Update:
    return mesh(HEARTBEAT, sequence, 0.0)
