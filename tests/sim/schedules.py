"""What may happen to a fleet, at random: schedules of events, and how one is carried out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from ..factories import TICK_NS
from .engine_fleet import Fleet

CUTS = ("part", "cut", "deafen", "isolate", "mute")
"""What breaks links."""
EVENTS = (
    "kill", "start", "freeze", "part", "heal", "cut", "deafen", "flap", "isolate", "mute",
    "reload", "leave", "join",
)  # fmt: skip


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
        fleet.cut(parted(names, {name for bit, name in enumerate(names) if event.whom >> bit & 1}))
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
    elif event.what == "join" and len(members) < len(names):
        gone = [name for name in names if name not in members]
        join(fleet, gone[event.who % len(gone)], event.whom % 4)


def parted(names: Collection[str], part: Collection[str]) -> set[tuple[str, str]]:
    """The paths between a part and the rest."""
    return {(a, b) for a in names for b in names if (a in part) != (b in part)}


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
