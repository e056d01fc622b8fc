"""Max-min fair shares of all flows at any time of a run. Pure.

The paper's yardstick is one bucket that all flows cross. There a flow with a bottleneck elsewhere
gets the bottleneck's rate, and the others share the rest evenly, or by the weights of their
limiters: max-min fairness. A UDP source gets its rate at most, on average over the times when it is
on and off.
A limiter with a dead daemon has left the fleet: its static share leaves the limit, and `on_failure`
decides about its flows.

Rates are bits/s of the IP layer.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from random import Random

from testbed.datagrams import UdpGroup, UdpSource
from testbed.events import Event
from testbed.experiment import Experiment, Flow

_AT_ONCE_S = 0.1
"""Changes within this time are one event: flows that start together are 20 ms apart."""
_FROM_THE_BEGINNING_S = 1.0
"""A flow that starts later has joined; earlier flows count from the beginning."""


@dataclass(frozen=True, slots=True)
class Change:
    """An event that changes the flows' fair shares."""

    at_s: float
    kind: str
    """join, leave, bottleneck, release, limit, death or return."""
    what: str
    """The flow, group or limiter concerned; for a limit, its new rate in bits/s."""
    event: Event | None = None


@dataclass(slots=True)
class Situation:
    """The flows and limiters present, and all rates that bound them."""

    experiment: Experiment
    limit_bps: float
    link_bps: dict[str, float]
    """Rate of the bottleneck of each group that has one."""
    running: dict[str, Flow | UdpSource] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)

    @classmethod
    def at_start(cls, experiment: Experiment) -> Situation:
        """Before the first flow."""
        rates = {group.name: group.table.rate for group in experiment.groups}
        links = {name: rate * 8.0 for name, rate in rates.items() if rate}
        return cls(experiment, experiment.table.limit.rate * 8.0, links)

    def apply(self, change: Change, flows: Mapping[str, Flow | UdpSource]) -> None:
        """Apply an event."""
        if change.kind == "join":
            self.running[change.what] = flows[change.what]
        elif change.kind == "leave":
            self.running.pop(change.what, None)
        elif change.kind == "death":
            self.dead.add(change.what)
        elif change.kind == "return":
            self.dead.discard(change.what)
        elif change.kind == "limit":
            self.limit_bps = float(change.what)
        elif change.event is not None:
            self.link_bps.pop(change.what, None)
            if change.event.do.rate is not None:
                self.link_bps[change.what] = change.event.do.rate * 8.0

    @property
    def in_force_bps(self) -> float:
        """The limit less the shares of dead limiters."""
        shares = self.experiment.table.limit.shares
        equal = 1 / len(self.experiment.limiters)
        return self.limit_bps * (1 - sum(shares.get(name, equal) for name in self.dead))

    def fair_bps(self) -> dict[str, float]:
        """The fair share of each flow at a living limiter, by the flow's id."""
        flows = [flow for flow in self.running.values() if flow.limiter not in self.dead]
        count = Counter(flow.group for flow in flows)
        of_one = {
            group: self.link_bps.get(group, float("inf")) / number
            for group, number in count.items()
        }
        of_one |= {group.name: group.mean_bps for group in self.experiment.udp}
        weights = [self.experiment.table.limit.weights.get(flow.limiter, 1.0) for flow in flows]
        level = water_level(self.in_force_bps, [of_one[flow.group] for flow in flows], weights)
        return {
            flow.id: min(weight * level, of_one[flow.group])
            for flow, weight in zip(flows, weights, strict=True)
        }


def water_level(capacity: float, ceilings: Sequence[float], weights: Sequence[float]) -> float:
    """The share, over its weight, of each flow that wants more: ceilings cut at it sum to the
    capacity.

    Infinite if the sum of all ceilings is below the capacity.
    """
    left, sharing = capacity, sum(weights)
    wants = sorted(zip(ceilings, weights, strict=True), key=lambda want: want[0] / want[1])
    for ceiling, weight in wants:
        level = left / sharing
        if ceiling >= weight * level:
            return level
        left -= ceiling
        sharing -= weight
    return float("inf")


def udp_sources(groups: Iterable[UdpGroup], duration_ns: int) -> list[tuple[UdpSource, float]]:
    """All UDP sources, each with the time, s, from which it counts: the start of its group."""
    rng = Random(0)  # it decides only the time of a source's first packet, which has no effect
    return [
        (source, group.table.start / 1e9)
        for group in groups
        for source in group.sources(duration_ns, rng)
    ]


def deserved(
    experiment: Experiment,
    flows: Sequence[tuple[Flow | UdpSource, float]],
    events: Iterable[Event],
    begin_s: float,
    end_s: float,
) -> dict[str, float]:
    """The mean fair share of each flow over the part of a time in which it lives, by its id.

    `flows` are those of TCP and UDP, with the time of their SYN or first packet. A flow that begins
    within the first second of a run counts from the beginning.
    """
    plans = {flow.id: flow for flow, _ in flows}
    duration_s = experiment.duration_ns / 1e9
    steps = changes(flows, events, duration_s)
    times = [0.0, *(together[0].at_s for together in steps[1:]), duration_s]
    situation = Situation.at_start(experiment)
    total: defaultdict[str, float] = defaultdict(float)
    lived: defaultdict[str, float] = defaultdict(float)
    for together, (since_s, until_s) in zip(steps, pairwise(times), strict=True):
        for change in together:
            situation.apply(change, plans)
        length_s = min(until_s, end_s) - max(since_s, begin_s)
        if length_s > 0:
            for flow, rate in situation.fair_bps().items():
                total[flow] += rate * length_s
                lived[flow] += length_s
    return {flow: total[flow] / lived[flow] for flow in total}


def changes(
    flows: Iterable[tuple[Flow | UdpSource, float]], events: Iterable[Event], duration_s: float
) -> list[list[Change]]:
    """All events of a run, in order; simultaneous events are in one list.

    `flows` have the time of their SYN. The first list has the flows from the beginning.
    """
    found = []
    for flow, syn_s in flows:
        found.append(Change(syn_s, "join", flow.id))
        if (end_s := flow.end_ns / 1e9) < duration_s:
            found.append(Change(end_s, "leave", flow.id))
    for event in events:
        at_s, do = event.at_ns / 1e9, event.do
        if do.flows is not None:
            found.append(
                Change(at_s, "release" if do.rate is None else "bottleneck", do.flows, event)
            )
        if do.limit is not None:
            found.append(Change(at_s, "limit", f"{do.limit * 8}", event))
        if do.kill is not None:
            found.append(Change(at_s, "death", do.kill, event))
        if do.start is not None:
            found.append(Change(at_s, "return", do.start, event))
    found.sort(key=lambda change: change.at_s)
    first = [change for change in found if change.at_s <= _FROM_THE_BEGINNING_S]
    return [first, *_together(found[len(first) :])]


def _together(found: Sequence[Change]) -> Iterable[list[Change]]:
    begin_s = float("-inf")

    def beginning(change: Change) -> float:
        nonlocal begin_s
        if change.at_s > begin_s + _AT_ONCE_S:
            begin_s = change.at_s
        return begin_s

    return (list(several) for _, several in groupby(found, beginning))
