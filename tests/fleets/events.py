"""Faults and changes of a `FluidFleet`, at random: schedules of events, and strategies for them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from ..factories import TICK_NS
from .limiters import FluidFleet

CUTS = ("part", "cut", "deafen", "isolate", "mute")
"""Events that break links."""
EVENTS = (
    "kill", "start", "freeze", "part", "heal", "cut", "deafen", "flap", "isolate", "mute",
    "reload", "leave", "join",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a fleet."""

    after: int
    """Intervals after the event before."""
    what: str
    """kill, start, freeze, part, heal, cut (both ways), deafen (one way), flap, isolate (it hears
    no peer), mute (no peer hears it), reload (of the limiters of some bits), leave (in order; the
    others drop it later, together or one by one), join (a limiter that has left comes back, if all
    others live)."""
    who: int
    """A limiter, modulo the fleet."""
    whom: int
    """Another limiter; or a bit for each limiter, and for `part` those of one part."""


flows = st.lists(st.sampled_from([0, 1, 1, 2, 5, 30]), min_size=2, max_size=12)
events = st.lists(
    st.builds(
        Event,
        after=st.sampled_from([0, 1, 5, 10, 20, 40, 80]),
        what=st.sampled_from(EVENTS),
        who=st.integers(0, 11),
        whom=st.integers(0, 4095),
    ),
    min_size=1,
    max_size=6,
)
slow = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
"""The settings for properties of whole fleets."""


def carry_out(fleet: FluidFleet, event: Event) -> None:
    """Carry out one event."""
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
        node.begin(fleet.now_ns)
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


def leave(fleet: FluidFleet, name: str, after: int, between: int) -> None:
    """A limiter ends; `after` so many intervals the others reload, so many `between` two."""
    fleet.nodes[name].leave()
    fleet.members.remove(name)
    fleet.run(after)
    for other in list(fleet.members):
        fleet.nodes[other].reload()
        fleet.run(between)


def join(fleet: FluidFleet, name: str, between: int) -> None:
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
    fleet.run(max(0, thawed_ns - fleet.now_ns) / TICK_NS + 2)
    node = fleet.nodes[name]
    node.fluid.flows = node.flows
    node.begin(fleet.now_ns)


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


def random_fleet(fabric: str, allocator: str, seed: int) -> tuple[FluidFleet, list[Event]]:
    """A fleet and what happens to it."""
    rng = Random(f"{fabric}/{allocator}/{seed}")
    size = rng.randint(2, 12)
    flows = [rng.choice((0, 1, 1, 2, 5, 30)) for _ in range(size)]
    loss = rng.choice((0.0, 0.0, 0.05, 0.2, 0.4))
    fleet = FluidFleet(fabric, flows, seed=seed, allocator=allocator, loss=loss)
    return fleet, random_events(rng, size)


def random_cut(fabric: str, seed: int, delay_ns: int, **limit: Any) -> tuple[FluidFleet, Event]:
    """A fleet that shares by FPS, and a cut."""
    rng = Random(f"{fabric}/cut/{seed}")
    flows = [rng.choice((0, 1, 2, 5, 30)) for _ in range(rng.randint(2, 8))]
    what = rng.choice(CUTS)
    event = Event(0, what, rng.randrange(len(flows)), rng.randrange(1 << len(flows)))
    return FluidFleet(fabric, flows, seed=seed, delay_ns=delay_ns, **limit), event


def random_breaks(fabric: str, seed: int, delay_ns: int) -> tuple[FluidFleet, list[Event]]:
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
    return FluidFleet(fabric, flows, seed=seed, delay_ns=delay_ns), events
