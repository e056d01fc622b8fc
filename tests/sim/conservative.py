"""Fleets to which things happen, and what their datapaths let through: the conservative rule.

Limiters are real `Engine`s in virtual time, each at a phase of its own, on the simulated network.
Their datapath is fluid: traffic arrives at a constant rate and not in packets, and what is enforced
at a moment is a number. It falls back to the static share as the kernel's does.

    made = Fleet("mesh", [3, 0, 9], seed=1)     # the flows of each limiter
    made.run(100)                               # intervals
    made.cut({("l0", "l1"), ("l1", "l0")})
    made.run(10)
    made.in_force()                             # sum of the local limits over the limit

`python -m tests.sim.conservative --seeds N` carries out N random schedules for each fabric and
allocator and prints those in which the limit is exceeded (docs/conservative-rule.md); with `--cuts`
one cut and its end each, or several of both (`--breaks`), and in which it is exceeded at any
moment.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from drld.engine import Engine
from drld.gossip import FABRICS
from drld.gossip.transport import Transport
from drld.model import GRACE_INTERVALS, Enforcement, FlowId, Measurement
from drld.spec import LimiterSpec, LimitSpec, ProbeSpec
from testbed.sim.clock import Clock
from testbed.sim.mailbox import Datagram, Mailbox
from testbed.sim.network import MS, Conditions, Network

from ..factories import MBIT, TICK_NS, gossip_spec, limit_spec, limiter_spec

LIMIT = 10 * MBIT
FLOW_RATE = 2.0 * LIMIT
"""Of one flow: each wants more than there is."""
MOST = 1 + 1e-5
"""Of the limit: local limits are rounded to bytes a second, values to float32."""
LOSSES_IN_A_ROW = 9
"""What is lost beyond is not loss but a link that is cut, and its end an event."""


class FluidDatapath:
    """One limit's traffic that arrives at a constant rate, and what becomes of it."""

    name = "fluid"

    def __init__(self) -> None:
        self.flows = 0
        """That send as fast as `FLOW_RATE`."""
        self.record = Enforcement()
        self.share = Enforcement()
        self._grace_ns = 0
        self._heartbeat_ns = 0
        self._read_ns = 0

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath`."""
        ((limit, self.record),) = limits
        self._grace_ns = GRACE_INTERVALS * limit.interval_ns
        self._heartbeat_ns = self._read_ns = now_ns

    def stirred(self) -> Collection[int]:
        """See `Datapath`."""
        return [1] if self.flows else []

    def read(self, limit_id: int, now_ns: int) -> Measurement:
        """See `Datapath`."""
        interval_ns = now_ns - self._read_ns
        self._read_ns = now_ns
        each = round(FLOW_RATE * interval_ns / 1e9)
        arrived = self.flows * each
        forwarded = min(arrived, round(self.passes(now_ns) * interval_ns / 1e9))
        return Measurement(
            interval_ns=interval_ns,
            arrived_bytes=arrived,
            arrived_packets=arrived // 1500,
            forwarded_bytes=forwarded,
            forwarded_packets=forwarded // 1500,
            dropped_bytes=arrived - forwarded,
            dropped_packets=(arrived - forwarded) // 1500,
            flows=dict.fromkeys(range(1, self.flows + 1), each),
        )

    def program(
        self,
        limit_id: int,
        enforcement: Enforcement,
        evict: Iterable[FlowId],
        now_ns: int,
    ) -> None:
        """See `Datapath`; it is in force at once."""
        self.record = enforcement

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath`."""
        self.share = share

    def flush(self, now_ns: int) -> None:
        """See `Datapath`: the daemon lives."""
        self._heartbeat_ns = now_ns

    def counters(self) -> Mapping[str, int]:
        """See `Datapath`."""
        return {}

    def detach(self) -> None:
        """See `Datapath`."""

    def passes(self, now_ns: int) -> float:
        """What is let through at that moment, bytes/s, where enough arrives."""
        old = now_ns - self._heartbeat_ns > self._grace_ns
        record = self.share if old else self.record
        passing = self.flows * FLOW_RATE * (1 - record.drop_probability)
        return passing if record.depth is None else min(passing, max(record.fill_rate, 0))

    @property
    def falls_back_ns(self) -> int:
        """When it enforces its static share, if the daemon does nothing more."""
        return self._heartbeat_ns + self._grace_ns + 1


class Node:
    """A limiter: a datapath that stays, and a daemon that comes and goes."""

    def __init__(self, name: str, flows: int, fleet: Fleet) -> None:
        self.name = name
        self.datapath = FluidDatapath()
        self.flows = self.datapath.flows = flows
        self._fleet = fleet
        self.mailbox = Mailbox(name, fleet.clock, fleet.network)
        self.alive = False
        self.frozen_until_ns = 0
        self._life = 0

    def start(self, began_ns: int) -> None:
        """A new daemon, which knows nothing, and finds nothing in its socket."""
        self.alive = True
        self.frozen_until_ns = 0
        self._life += 1
        fleet = self._fleet
        for _ in fleet.network.receive(self.name, fleet.clock.now_ns):
            pass
        self.mailbox.restart()
        spec = self._spec()
        self.mailbox.update_peers({peer.name: peer.address for peer in spec.peers})
        transport = cast(Transport, self.mailbox)
        self.engine = Engine(spec, self.datapath, transport, fleet.rng)
        self.engine.start(began_ns)
        fleet.clock.at(self.engine.next_due_ns(), self._tick, self._life)

    def _spec(self) -> LimiterSpec:
        fleet = self._fleet
        peers = [name for name in fleet.members if name != self.name]
        return limiter_spec(
            fleet.limit, peers=peers, name=self.name, gossip=fleet.gossip, probes=fleet.probes
        )

    def reload(self) -> None:
        """The daemon, if it lives, reads its file: the members of the fleet as they are now."""
        now_ns = self._fleet.clock.now_ns
        if self.alive and now_ns < self.frozen_until_ns:
            self._fleet.clock.at(self.frozen_until_ns, self._reload_later, self._life)
        elif self.alive:
            self.engine.reconfigure(self._spec(), now_ns, reattach=False)

    def _reload_later(self, life: int) -> None:
        if life == self._life:
            self.reload()

    def leave(self) -> None:
        """The daemon ends in order, and nothing passes here any more."""
        if self.alive:
            self.engine.stop()
        self.kill()
        self.datapath.flows = 0

    def kill(self) -> None:
        """The daemon dies."""
        self.alive = False
        self._life += 1
        self._fleet.clock.at(self.datapath.falls_back_ns, self._note)

    def freeze(self, for_ns: int) -> None:
        """The daemon does nothing for so long, then goes on where it was."""
        self.frozen_until_ns = self._fleet.clock.now_ns + for_ns
        self._fleet.clock.at(self.datapath.falls_back_ns, self._note)

    def _note(self, _: Any) -> None:
        self._fleet.note()

    def _tick(self, life: int) -> None:
        if life != self._life:
            return
        clock = self._fleet.clock
        if clock.now_ns < self.frozen_until_ns:
            clock.at(self.frozen_until_ns, self._tick, life)
            return
        self.engine.tick(clock.now_ns)
        self._fleet.note()
        clock.at(self.engine.next_due_ns(), self._tick, life)


class LossyNetwork(Network[Datagram]):
    """Loses no more than so many in a row on a path."""

    def __init__(self, seed: int, conditions: Conditions) -> None:
        super().__init__(seed, conditions)
        self._lost_in_a_row: dict[tuple[str, str], int] = {}
        self._fate = Random(f"{seed}/fate")
        self.loss = 0.0

    def send(self, source: str, destination: str, datagram: Datagram, now_ns: int) -> None:
        """See `Network`."""
        path = source, destination
        row = self._lost_in_a_row.get(path, 0)
        if row < LOSSES_IN_A_ROW and self._fate.random() < self.loss:
            self._lost_in_a_row[path] = row + 1
        else:
            self._lost_in_a_row[path] = 0
            super().send(source, destination, datagram, now_ns)


class Fleet:
    """Limiters l0, l1, ... of one limit."""

    def __init__(
        self,
        fabric: str,
        flows: Sequence[int],
        *,
        seed: int,
        allocator: str = "fps",
        loss: float = 0.0,
        delay_ns: int = 10 * MS,
        **limit: Any,
    ) -> None:
        """`flows` at each limiter; none is idle.

        `delay_ns` is that of each path, one way; up to 20 ms are added.
        """
        self.names = [f"l{number}" for number in range(len(flows))]
        self.members = list(self.names)
        """Those that have not left."""
        self.limit = limit_spec(allocator, rate=LIMIT, **limit)
        self.gossip = gossip_spec(fabric)
        self.probes = ProbeSpec()
        self.rng = Random(seed)
        self.clock = Clock(1000 * TICK_NS)
        self.network = LossyNetwork(seed, Conditions(delay_ns=delay_ns, jitter_ns=20 * MS))
        self.network.loss = loss
        self.most = self.least = 0.0
        """The largest and the smallest sum since `watch`."""
        self.look: Callable[[], None] | None = None
        """Called when something is enforced that was not before."""
        self.nodes = {
            name: Node(name, count, self) for name, count in zip(self.names, flows, strict=True)
        }
        for node in self.nodes.values():
            node.start(self.clock.now_ns - self.rng.randrange(TICK_NS))

    def run(self, intervals: float) -> None:
        """Let time pass."""
        self.clock.run(self.clock.now_ns + round(intervals * TICK_NS))

    def in_force(self) -> float:
        """Sum of the local limits in force, dead limiters' included, over the limit."""
        now_ns = self.clock.now_ns
        return math.fsum(node.datapath.passes(now_ns) for node in self.nodes.values()) / LIMIT

    def note(self) -> None:
        """Something is enforced that was not before."""
        total = self.in_force()
        self.most = max(self.most, total)
        self.least = min(self.least, total)
        if self.look is not None:
            self.look()

    def watch(self) -> None:
        """Begin to look for the largest sum, and the smallest."""
        self.most = self.least = self.in_force()

    def passes(self, name: str) -> float:
        """The local limit of one limiter, over the limit."""
        return self.nodes[name].datapath.passes(self.clock.now_ns) / LIMIT

    def believed(self, name: str) -> float:
        """The flow weight of all, as one limiter has it."""
        last = self.nodes[name].engine.entries[1].last
        assert last is not None
        return last.view.remote + last.allocation.value

    @property
    def detection_intervals(self) -> int:
        """The detection time."""
        entries = self.nodes[self.members[0]].engine.entries
        return -(-entries[1].limiter.fabric.detection_ns // TICK_NS)

    def cut(self, paths: Iterable[tuple[str, str]]) -> None:
        """Let nothing through on these paths, and on no others."""
        self.network.cut = set(paths)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to a fleet, `after` so many intervals."""

    after: int
    what: str
    """kill, start, freeze, part, heal, cut (both ways), deafen (one way), flap, isolate (who hears
    nobody), mute (whom nobody hears), reload (those of some bits), leave (in order; the
    others drop it later, together or one by one), join (one that has left comes back, if all
    live)."""
    who: int
    """A limiter, where it matters; modulo the fleet."""
    whom: int
    """Another; or a bit for each limiter: its part."""


def carry_out(fleet: Fleet, event: Event) -> None:
    """Let one thing happen."""
    fleet.run(event.after)
    names = fleet.names
    members = fleet.members
    node = fleet.nodes[members[event.who % len(members)]]
    other = members[event.whom % len(members)]
    cut = fleet.network.cut
    if event.what == "kill" and node.alive:
        node.kill()
    elif event.what == "start":
        # A daemon that lives is killed: it is restarted.
        node.start(fleet.clock.now_ns)
    elif event.what == "freeze" and node.alive:
        # That it goes on is an event, too: `excess` waits for it.
        node.freeze((1 + event.whom % 40) * TICK_NS)
    elif event.what == "part":
        part = {name for bit, name in enumerate(names) if event.whom >> bit & 1}
        fleet.cut({(a, b) for a in names for b in names if (a in part) != (b in part)})
    elif event.what == "heal":
        cut.clear()
    elif event.what == "cut":
        cut |= {(node.name, other), (other, node.name)}
    elif event.what == "deafen":
        cut |= {(other, node.name)}
    elif event.what == "isolate":
        cut |= {(name, node.name) for name in names}
    elif event.what == "mute":
        cut |= {(node.name, name) for name in names}
    elif event.what == "flap":
        for _ in range(3):
            cut |= {(node.name, other), (other, node.name)}
            fleet.run(1 + event.who % 30)
            cut -= {(node.name, other), (other, node.name)}
            fleet.run(1 + event.whom % 30)
    elif event.what == "reload":
        for bit, name in enumerate(members):
            if event.whom >> bit & 1:
                fleet.nodes[name].reload()
    elif event.what == "leave" and len(members) > 1:
        leave(fleet, node.name, 1 + event.whom % 40, event.who % 4)
    elif event.what == "join" and members != names:
        gone = [name for name in names if name not in members]
        join(fleet, gone[event.who % len(gone)], event.whom % 4)


def leave(fleet: Fleet, name: str, after: int, between: int) -> None:
    """A limiter ends; `after` so many intervals the others reload, so many `between` two."""
    fleet.nodes[name].leave()
    fleet.members.remove(name)
    fleet.run(after)
    for other in list(fleet.members):
        fleet.nodes[other].reload()
        fleet.run(between)


def join(fleet: Fleet, name: str, between: int) -> None:
    """All reload, so many intervals `between` two, and then the one that is new starts.

    Unless one of them is dead: it could not make room.
    """
    others = [fleet.nodes[other] for other in fleet.members]
    if not all(node.alive for node in others):
        return
    fleet.members.append(name)
    for node in others:
        node.reload()
        fleet.run(between)
    thawed_ns = max(node.frozen_until_ns for node in others)
    # What is enforced follows at the next tick.
    fleet.run(max(0, thawed_ns - fleet.clock.now_ns) / TICK_NS + 2)
    node = fleet.nodes[name]
    node.datapath.flows = node.flows
    node.start(fleet.clock.now_ns)


CUTS = ("part", "cut", "deafen", "isolate", "mute")
EVENTS = (
    "kill", "start", "freeze", "part", "heal", "cut", "deafen", "flap", "isolate", "mute",
    "reload", "leave", "join",
)  # fmt: skip


def excess(fleet: Fleet, events: Sequence[Event], watched: int = 60) -> float:
    """The largest sum of the local limits later than a detection time after the last event.

    Over the limit.
    """
    fleet.run(80)
    for event in events:
        carry_out(fleet, event)
    thawed_ns = max(node.frozen_until_ns for node in fleet.nodes.values())
    fleet.run(max(0, thawed_ns - fleet.clock.now_ns) / TICK_NS)
    fleet.run(fleet.detection_intervals)
    fleet.watch()
    fleet.run(watched)
    return fleet.most


def random_events(rng: Random, size: int) -> list[Event]:
    """A schedule."""
    return [
        Event(
            rng.choice((0, 1, 5, 10, 20, 40, 80, 300)),
            rng.choice(EVENTS),
            rng.randrange(size),
            rng.randrange(1 << size),
        )
        for _ in range(rng.randint(1, 8))
    ]


def random_fleet(fabric: str, allocator: str, seed: int) -> tuple[Fleet, list[Event]]:
    """A fleet and what happens to it."""
    rng = Random(f"{fabric}/{allocator}/{seed}")
    size = rng.randint(2, 12)
    flows = [rng.choice((0, 1, 1, 2, 5, 30)) for _ in range(size)]
    loss = rng.choice((0.0, 0.0, 0.05, 0.2, 0.4))
    fleet = Fleet(fabric, flows, seed=seed, allocator=allocator, loss=loss)
    return fleet, random_events(rng, size)


def excess_of_cuts(fleet: Fleet, *cuts: Event) -> float:
    """The largest sum of the local limits from before a cut until after its end; over the limit."""
    fleet.run(80)
    fleet.watch()
    for cut in cuts:
        carry_out(fleet, cut)
    fleet.run(fleet.detection_intervals + 5)
    fleet.cut(())
    fleet.run(fleet.detection_intervals + 5)
    return fleet.most


def random_cut(fabric: str, seed: int, delay_ns: int, **limit: Any) -> tuple[Fleet, Event]:
    """A fleet that shares by FPS, and a cut."""
    rng = Random(f"{fabric}/cut/{seed}")
    flows = [rng.choice((0, 1, 2, 5, 30)) for _ in range(rng.randint(2, 8))]
    what = rng.choice(CUTS)
    event = Event(0, what, rng.randrange(len(flows)), rng.randrange(1 << len(flows)))
    return Fleet(fabric, flows, seed=seed, delay_ns=delay_ns, **limit), event


def random_breaks(fabric: str, seed: int, delay_ns: int) -> tuple[Fleet, list[Event]]:
    """A fleet whose links break and come back sooner than it can adapt to it."""
    rng = Random(f"{fabric}/breaks/{seed}")
    flows = [rng.choice((0, 1, 2, 5, 30)) for _ in range(rng.randint(3, 8))]
    events = [
        Event(
            rng.choice((0, 1, 3, 5, 10, 15, 20, 30, 40, 60)),
            rng.choice((*CUTS, "heal", "flap")),
            rng.randrange(len(flows)),
            rng.randrange(1 << len(flows)),
        )
        for _ in range(rng.randint(2, 5))
    ]
    return Fleet(fabric, flows, seed=seed, delay_ns=delay_ns), events


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100, help="schedules of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fabric", action="append", choices=FABRICS, help="no others")
    parser.add_argument("--allocator", action="append", help="no others")
    parser.add_argument("--cuts", action="store_true", help="of FPS: a cut and its end each")
    parser.add_argument("--breaks", action="store_true", help="of FPS: several cuts and ends each")
    parser.add_argument("--delay", type=int, default=10, help="of paths in cuts, one way, ms")
    args = parser.parse_args()
    allocators = ("fps",) if args.cuts or args.breaks else ("static", "fps", "fps-random-drop")
    kinds = itertools.product(args.fabric or FABRICS, args.allocator or allocators)
    bad = 0
    for fabric, allocator in kinds:
        sums = []
        for seed in range(args.first, args.first + args.seeds):
            if args.cuts:
                fleet, cut = random_cut(fabric, seed, args.delay * MS)
                events = [cut]
                sums.append(excess_of_cuts(fleet, cut))
            elif args.breaks:
                fleet, events = random_breaks(fabric, seed, args.delay * MS)
                sums.append(excess_of_cuts(fleet, *events))
            else:
                fleet, events = random_fleet(fabric, allocator, seed)
                sums.append(excess(fleet, events))
            if len(sums) % 20 == 0:
                print(f"{fabric} {allocator}: {len(sums)}", end="\r", file=sys.stderr, flush=True)
            if sums[-1] > MOST:
                print(f"{fabric} {allocator} {seed}: {sums[-1]:.4f}, {fleet.network.loss} lost")
                print(f"    {events}", flush=True)
        over = sum(value > MOST for value in sums)
        print(f"{fabric} {allocator}: {over} of {len(sums)} above, at most {max(sums):.6f}")
        bad += over
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
