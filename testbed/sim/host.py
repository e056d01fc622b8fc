"""One limiter: drld's engine on a datapath and a socket in memory, ticking as the daemon does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from time import thread_time_ns

from drld.capture.plane import packets
from drld.engine import Engine
from drld.limiter import Tick
from drld.managed_limit import ManagedLimit
from drld.model import GRACE_INTERVALS, FlowId
from drld.planes.plane import Plane
from drld.police.policer import Policer
from drld.spec import LimiterSpec
from testbed.sim.datapath import MemoryDatapath
from testbed.sim.mailbox import Datagram, Mailbox
from testbed.sim.network import Network
from testbed.tcp.clock import Clock


class Host:
    """A limiter with one limit, and its counts."""

    def __init__(
        self,
        spec: LimiterSpec,
        clock: Clock,
        network: Network[Datagram],
        rng: Random,
        policer: type[Policer] = Policer,
    ) -> None:
        self.name = spec.name
        self.alive = True
        self.arrived = 0
        """IP bytes that arrived; `forwarded`: those that passed."""
        self.forwarded = 0
        self.watch: Callable[[Host, Tick], None] | None = None
        """Called for every tick of the limit."""
        self.tick_ns: list[int] | None = None
        """Processor time of every tick, ns; None: not measured."""
        self.datapath = MemoryDatapath(policer)
        self.mailbox = Mailbox(spec.name, clock, network)
        self.engine = Engine(spec, self.planes(), self.mailbox, rng)
        self._clock = clock
        self._rng = rng
        self._frozen_until_ns = 0
        self._life = 0
        """Number of the daemon's life: events of an earlier life are ignored."""

    def planes(self) -> list[Plane]:
        """The planes of a life of the daemon: packets alone."""
        return [packets(self.datapath)]

    def start(self, began_ns: int) -> None:
        """Start as if at that time, less than an interval ago, which sets the phase."""
        self.engine.start(began_ns)
        (self._policer,) = self.datapath.policers.values()
        self._clock.at(self.engine.next_due_ns(), self._tick, self._life)

    def kill(self) -> None:
        """The daemon dies; its datapath goes on, and falls back to the static share."""
        self.alive = False
        self._life += 1
        self._begin_grace()

    def freeze(self, for_ns: int) -> None:
        """The daemon stands still for a time, then goes on; its datapath behaves as in `kill`."""
        self._frozen_until_ns = self._clock.now_ns + for_ns
        self._begin_grace()

    def _begin_grace(self) -> None:
        policy = self.managed.limiter.policy
        interval_ns = min(policy.interval_ns, self.engine.spec.gossip.interval_ns)
        when_ns = self._clock.now_ns + GRACE_INTERVALS * interval_ns
        self._clock.at(when_ns, self._fall_back, self._life)

    def _fall_back(self, life: int) -> None:
        stopped = not self.alive or self._clock.now_ns < self._frozen_until_ns
        if life == self._life and stopped:
            self._policer.program(self.managed.limiter.initial(), (), self._clock.now_ns)

    def revive(self) -> None:
        """A new daemon without knowledge takes over the datapath."""
        self.alive = True
        self._frozen_until_ns = 0
        self._life += 1
        self.mailbox.restart()
        self.engine = Engine(self.engine.spec, self.planes(), self.mailbox, self._rng)
        self.start(self._clock.now_ns)

    def set_rate(self, rate: int) -> None:
        """Change the limit's rate, bytes/s, as a reload does."""
        spec = self.engine.spec
        (limit,) = spec.limits
        changed = replace(spec, limits=(replace(limit, policy=replace(limit.policy, rate=rate)),))
        if self.alive:
            self.engine.reconfigure(changed, self._clock.now_ns)
        else:
            self.engine.node.spec = changed

    @property
    def managed(self) -> ManagedLimit:
        """The engine's knowledge of the limit."""
        (managed,) = self.engine.limits.values()
        return managed

    @property
    def policer(self) -> Policer:
        """The limit's policer."""
        return self._policer

    def passes(self, flow: FlowId, length: int, capable: bool = False) -> int:
        """The verdict on a packet of `length` IP bytes that arrives now.

        Args:
            flow: its flow.
            length: its bytes; for a super-packet, the bytes of all its segments.
            capable: whether it is ECN-capable.

        Returns:
            `DROP` (false), `FORWARD`, or `MARK` (`drld.police.policer`).
        """
        self.arrived += length
        verdict = self._policer.police(flow, length, self._clock.now_ns, self._rng, capable)
        if verdict:
            self.forwarded += length
        return verdict

    def _tick(self, life: int) -> None:
        if life != self._life:
            return
        if self._clock.now_ns < self._frozen_until_ns:
            self._clock.at(self._frozen_until_ns, self._tick, life)
            return
        begin_ns = 0 if self.tick_ns is None else thread_time_ns()
        ticks = self.engine.tick(self._clock.now_ns)
        if self.tick_ns is not None:
            self.tick_ns.append(thread_time_ns() - begin_ns)
        if self.watch is not None:
            for _name, tick in ticks:
                self.watch(self, tick)
        self._clock.at(self.engine.next_due_ns(), self._tick, life)
