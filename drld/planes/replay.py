"""A replay of captured items through limits, each item at its own time (`drlctl replay`). Pure.

A plane reads and judges its own items, in a subclass. Each limit enforces its whole rate and burst.
With `static` it has one bucket; with another allocator it behaves as on the only limiter of a
fleet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from drld.allocators import ALLOCATORS
from drld.estimate.traffic_profile import TrafficProfile, suggest
from drld.gossip.fabrics.membership import Membership
from drld.limiter import Limiter, static_share
from drld.model import NS_PER_S, Enforcement, FlowId
from drld.node import membership
from drld.planes.explanation import Words
from drld.police.policer import MARK, Policer
from drld.police.policer_set import PolicerSet
from drld.police.tally import TICK_NS, Tally
from drld.policy import Policy
from drld.spec import GossipSpec, LimitSpec

T = TypeVar("T")

TOP = 10
"""Flows that are listed."""
REPORT_EVERY = 20_000
"""Items between two reports of progress: a fraction of a second."""
PART = 0.99
"""Part of the seconds with traffic that a suggested rate does not limit."""
_ALONE = "replay"


class Watched(Policer):
    """A policer that tells its tally what it does."""

    __slots__ = ("_clock", "_key", "_name", "_noted", "_policy", "tally")

    def __init__(
        self,
        policy: Policy,
        enforcement: Enforcement,
        now_ns: int,
        name: Callable[[Policy, FlowId], Hashable],
        clock: Callable[[], int],
    ) -> None:
        """`name` says which of the listed flows one is; `clock` is the time of the item, ns."""
        super().__init__(policy, enforcement, now_ns)
        self.tally = Tally(now_ns, policy.unit.min_rate)
        self._name = name
        self._clock = clock
        self._noted = False
        """Whether the item is in the tally: one that an earlier limit drops never is."""
        self._policy = policy
        self._key: Hashable = 0

    def arrive(self, flow: FlowId, length: int) -> None:
        """See `Policer.arrive`."""
        super().arrive(flow, length)
        self._key = self._name(self._policy, flow)
        self._noted = False

    def _note(self, length: int) -> None:
        if not self._noted:
            self._noted = True
            self.tally.arrive(self._key, length, self._clock())

    def refuses(self, length: int, now_ns: int, rng: Random, capable: bool = False) -> bool:
        """See `Policer.refuses`."""
        self._note(length)
        return super().refuses(length, now_ns, rng, capable)

    def drop(self, length: int) -> bool:
        """See `Policer.drop`."""
        self._note(length)
        self.tally.drop(length)
        return super().drop(length)

    def forward(self, length: int) -> int:
        """See `Policer.forward`."""
        self._note(length)
        self.tally.forward(self._key, length, self._verdict is MARK)
        return super().forward(length)


class Replayed(ABC, Generic[T]):
    """Items with their times, and the limits that judge them."""

    items: ClassVar[str]
    """The plural noun for the items."""
    words: ClassVar[Words]
    unseen: ClassVar[str | None]
    """The name of items that no limit sees; None: there are no such items."""
    policers: PolicerSet

    def __init__(
        self,
        captured: Iterable[tuple[int, T | None]],
        limits: Iterable[LimitSpec],
        allocator: str,
    ) -> None:
        """Read no item yet.

        Args:
            captured: Unix times, ns, and items; None is something that no limit sees.
            limits: the plane's limits, in the order of the configuration.
            allocator: what they enforce their rates with, instead of their own.
        """
        self._captured = captured
        self._limits = [_alone(it, allocator) for it in limits]
        self._watched: dict[int, Watched] = {}
        self._fleets = {
            limit.id: Limiter(limit.policy, _nobody_else(limit.policy), "mesh")
            for limit in self._limits
            if allocator != "static"
        }
        self._due_ns: dict[int, int] = {}
        self.count = 0
        self.strange = 0
        """Items that no limit sees."""
        self.first_ns = self.last_ns = self._now_ns = 0
        self.back = 0
        """Items before the one that the capture has before them."""

    @abstractmethod
    def judge(self, it: T, now_ns: int) -> object:
        """Decide about an item that comes at this time, ns."""

    @abstractmethod
    def start(self, limits: list[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """Use these limits from now on; `watch` makes their policers."""

    @abstractmethod
    def flow_of(self, policy: Policy, flow: FlowId) -> Hashable:
        """The listed flow that the present item belongs to."""

    @abstractmethod
    def flow_name(self, policy: Policy, flow: Hashable) -> str:
        """The name of a listed flow."""

    def watch(self, policy: Policy, enforcement: Enforcement, now_ns: int) -> Policer:
        """The policer of a limit."""
        made = self._watched[policy.id] = Watched(
            policy, enforcement, now_ns, self.flow_of, lambda: self._now_ns
        )
        return made

    def run(self) -> Iterator[int]:
        """Judge the items; yield their number now and then.

        Raises:
            InputError: a part of the capture is damaged; the items before it are judged.
        """
        try:
            yield from self._run()
        finally:
            for watched in self._watched.values():
                watched.tally.end()

    def _run(self) -> Iterator[int]:
        for time_ns, it in self._captured:
            if not self.count:
                self._start(time_ns)
            self.count += 1
            self.back += time_ns < self.last_ns
            self.last_ns = max(self.last_ns, time_ns)
            self._now_ns = time_ns
            for limit_id, due_ns in self._due_ns.items():
                if it is not None and time_ns >= due_ns:
                    self._tick(limit_id, time_ns)
            if it is not None:
                self.judge(it, time_ns)
            else:
                self.strange += 1
            if self.count % REPORT_EVERY == 0:
                yield self.count

    def _start(self, now_ns: int) -> None:
        self.first_ns = self.last_ns = now_ns
        self.start([(it, static_share(it.policy, 1.0)) for it in self._limits], now_ns)
        self._due_ns = {
            limit.id: now_ns + limit.policy.interval_ns
            for limit in self._limits
            if limit.id in self._fleets
        }

    def _tick(self, limit_id: int, now_ns: int) -> None:
        """End the intervals that are over; a limit without demand skips them."""
        limiter = self._fleets[limit_id]
        interval_ns = limiter.policy.interval_ns
        due_ns = self._due_ns[limit_id]
        while due_ns <= now_ns:
            measured = self.policers.read(limit_id, due_ns)
            if limiter.quiescent and not measured.arrived_items:
                due_ns = now_ns + interval_ns
                self.policers.read(limit_id, now_ns)
                break
            tick = limiter.tick(measured, due_ns)
            self.policers.program(limit_id, tick.enforcement, tick.evict, due_ns)
            limiter.publish((), due_ns)
            due_ns += interval_ns
        self._due_ns[limit_id] = due_ns

    def results(self) -> list[dict[str, Any]]:
        """The results of each limit as JSON: rates in bits/s and sizes in bytes, or in the limit's
        unit."""
        return [self._result(limit, self._watched.get(limit.id)) for limit in self._limits]

    def _result(self, limit: LimitSpec, watched: Watched | None) -> dict[str, Any]:
        policy, shown = limit.policy, limit.policy.unit.shown_amount
        tally = watched.tally if watched else Tally(0, policy.unit.min_rate)
        names = ("arrived", "forwarded", "dropped", "marked")
        counted: dict[str, Sequence[float]] = {
            "packets": tally.packets,
            "bytes": [shown(size) for size in tally.size],
        }
        top = sorted(tally.flows.items(), key=lambda item: -item[1][1])[:TOP]
        forwarded = tally.size[1] or 1
        return {
            "limit": policy.name,
            "mode": policy.mode.value,
            "allocator": policy.allocator,
            "unit": policy.unit.name,
            "rate_bps": policy.unit.shown_rate(policy.rate),
            "burst_bytes": shown(policy.burst),
            **{
                f"{name}_{unit}": count
                for unit, counts in counted.items()
                for name, count in zip(names, counts, strict=True)
            },
            "flows": [
                {
                    "flow": self.flow_name(policy, flow),
                    "arrived_bytes": shown(sizes[0]),
                    "forwarded_bytes": shown(sizes[1]),
                    "share": sizes[1] / forwarded,
                }
                for flow, sizes in top
            ],
            "worst_second": tally.worst
            and {
                "at_s": tally.worst[0],
                **{f"{name}_bytes": shown(it) for name, it in tally.worst[1]._asdict().items()},
            },
            "seconds": tally.profile.seconds,
            "suggestion": None if policy.keyed else _suggestion(policy, tally.profile),
            "keyed": policy.keyed is not None,
            "span_s": tally.span_s,
            "spans": [[shown(size) for size in span] for span in tally.spans],
        }

    @property
    def seconds(self) -> float:
        """The time from the first item to the last."""
        return (self.last_ns - self.first_ns) / NS_PER_S


def _suggestion(policy: Policy, profile: TrafficProfile) -> dict[str, Any] | None:
    """A rate and a burst from what arrived, as the control API has them; None: too little did."""
    found = suggest(profile, PART, policy.unit)
    if found is None:
        return None
    return {
        "limit": policy.name,
        "mode": "replay",
        "unit": policy.unit.name,
        "rate_bps": policy.unit.shown_rate(found.rate),
        "burst_bytes": policy.unit.shown_amount(found.burst),
        "part": PART,
        "seconds": profile.seconds,
        "seen_s": profile.seen_s,
        "interval_s": TICK_NS / NS_PER_S,
    }


def _alone(limit: LimitSpec, allocator: str) -> LimitSpec:
    """The limit as the only limiter of a fleet has it."""
    policy = limit.policy
    parameters = policy.parameters
    if policy.allocator != allocator:
        parameters = ALLOCATORS[allocator].Parameters()
    policy = replace(policy, allocator=allocator, parameters=parameters, shares={}, weights={})
    return replace(limit, policy=policy)


def _nobody_else(policy: Policy) -> Membership:
    """The membership of a fleet of one limiter."""
    return membership(_ALONE, {_ALONE}, GossipSpec("mesh", 3, policy.interval_ns))
