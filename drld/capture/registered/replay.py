"""What limits would have done to the packets of a capture: `drlctl replay`, for packets. Pure.

The gate and the policers of the nfqueue datapath judge the packets, at the packets' own times. Each
limit enforces its whole rate and burst: with `static` in one bucket, with another allocator as a
limiter does that has the fleet for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import IO, Any

from drld.allocators import ALLOCATORS
from drld.capture.gate import Gate
from drld.capture.notation import crossing, flow_name
from drld.capture.packet import COPY_BYTES, outline
from drld.capture.patterns import covers
from drld.capture.spec import Match, match_of
from drld.capture.tally import TICK_NS, Tally
from drld.capture.trace_file import Captured, packets
from drld.estimate.traffic_profile import TrafficProfile, suggest
from drld.gossip.fabrics.membership import Membership
from drld.limiter import Limiter, static_share
from drld.model import NS_PER_S, Enforcement, FlowId, FlowKey
from drld.node import membership
from drld.police.direction import Direction
from drld.police.policer import DROP, FORWARD, MARK, Policer
from drld.police.source_sample import SourcePrefix, source_of
from drld.policy import Policy
from drld.spec import GossipSpec, LimitSpec

EVERYTHING = {"out": "any"}
"""`match` of a limit that every packet falls under, if no words say where it crosses."""
TOP = 10
"""Flows that are listed."""
REPORT_EVERY = 20_000
"""Packets between two reports of progress: a fraction of a second."""
PART = 0.99
"""Of the seconds with traffic, that a suggested rate does not limit."""
_ALONE = "replay"


class _Watched(Policer):
    """A policer that tells its tally what it does."""

    __slots__ = ("_key", "_prefix", "tally")

    def __init__(self, policy: Policy, enforcement: Enforcement, now_ns: int) -> None:
        super().__init__(policy, enforcement, now_ns)
        self.tally = Tally(now_ns)
        self._prefix = policy.flow if isinstance(policy.flow, SourcePrefix) else None
        self._key: FlowId = 0

    def arrive(self, flow: FlowId, length: int) -> None:
        """See `Policer.arrive`."""
        super().arrive(flow, length)
        if self._prefix is not None:
            assert isinstance(flow, FlowKey)
            flow = source_of(flow, self._prefix)
        self._key = flow

    def refuses(self, length: int, now_ns: int, rng: Random, capable: bool = False) -> bool:
        """See `Policer.refuses`."""
        self.tally.arrive(self._key, length, now_ns)
        refused = super().refuses(length, now_ns, rng, capable)
        if refused:
            self.tally.drop(length)
        return refused

    def forward(self, length: int) -> int:
        """See `Policer.forward`."""
        marked = self._verdict is MARK
        self.tally.forward(self._key, length, marked)
        return super().forward(length)


class Replay:
    """A capture, and the limits that judge its packets."""

    def __init__(
        self,
        stream: IO[bytes],
        words: str,
        limits: Iterable[LimitSpec],
        allocator: str,
        rng: Random,
    ) -> None:
        """Read no packet yet.

        Args:
            stream: the capture.
            words: where the packets cross this host (`drld.capture.notation`); without them, at
                each place that a limit names, as if the capture had been taken there.
            limits: all limits, in the order of the configuration.
            allocator: what they enforce their rates with, instead of their own.
            rng: decides random drops.

        Raises:
            InputError: it is no capture, or there are other words.
        """
        crosses, self._mark = crossing(words)
        self._captured = packets(stream)
        self._limits = [_alone(it, allocator) for it in limits if isinstance(it.match, Match)]
        self._in_turn = bool(crosses)
        hooks = {(match_of(limit).direction, match_of(limit).interface) for limit in self._limits}
        # A packet at a named interface falls under the limits of its pattern, too: once is enough.
        hooks -= {
            (way, pattern)
            for way, pattern in hooks
            for other, name in hooks
            if way is other and pattern != name and covers(pattern, name)
        }
        ordered = sorted(hooks, key=lambda hook: (hook[0] is Direction.OUT, hook[1]))
        self._hooks = crosses or tuple(ordered)
        self._watched: dict[int, _Watched] = {}
        self._gate = Gate(rng, policer=self._watch)
        self._fleets = {
            limit.id: Limiter(limit.policy, _nobody_else(limit.policy), "mesh")
            for limit in self._limits
            if allocator != "static"
        }
        self._due_ns: dict[int, int] = {}
        self.packets = 0
        self.strange = 0
        """Frames that are not IP, which no limit sees."""
        self.first_ns = self.last_ns = 0
        self.back = 0
        """Packets before the one that the capture has before them."""

    def _watch(self, policy: Policy, enforcement: Enforcement, now_ns: int) -> Policer:
        made = self._watched[policy.id] = _Watched(policy, enforcement, now_ns)
        return made

    def run(self) -> Iterator[int]:
        """Judge the packets; yield their number now and then.

        Raises:
            InputError: a part of the capture is damaged; the packets before it are judged.
        """
        try:
            yield from self._run()
        finally:
            for watched in self._watched.values():
                watched.tally.end()

    def _run(self) -> Iterator[int]:
        for it in self._captured:
            if not self.packets:
                self._start(it.time_ns)
            self.packets += 1
            self.back += it.time_ns < self.last_ns
            self.last_ns = max(self.last_ns, it.time_ns)
            if it.data:
                self.judge(it)
            else:
                self.strange += 1
            if self.packets % REPORT_EVERY == 0:
                yield self.packets

    def _start(self, now_ns: int) -> None:
        self.first_ns = self.last_ns = now_ns
        self._gate.replace([(it, static_share(it.policy, 1.0)) for it in self._limits], now_ns)
        self._due_ns = {
            limit.id: now_ns + limit.policy.interval_ns
            for limit in self._limits
            if limit.id in self._fleets
        }

    def judge(self, it: Captured) -> int:
        """The verdict on a packet: the lowest, where it crosses several places."""
        for limit_id, due_ns in self._due_ns.items():
            if it.time_ns >= due_ns:
                self._tick(limit_id, it.time_ns)
        data = it.data[:COPY_BYTES]
        if self._gate.marks:
            # The gate marks whole packets alone; a capture may have cut this one off, or padded it.
            _, length = outline(data)
            data = it.data[:length].ljust(length, b"\0") if length else it.data
        verdicts = []
        for direction, interface in self._hooks:
            verdicts.append(self._gate.judge(data, interface, direction, self._mark, it.time_ns))
            if self._in_turn and verdicts[-1] == DROP:
                break
        if DROP in verdicts:
            return DROP
        return max(verdicts, default=FORWARD)

    def _tick(self, limit_id: int, now_ns: int) -> None:
        """End the intervals that are over; a limit without demand skips them."""
        limiter = self._fleets[limit_id]
        interval_ns = limiter.policy.interval_ns
        due_ns = self._due_ns[limit_id]
        while due_ns <= now_ns:
            measured = self._gate.read(limit_id, due_ns)
            if limiter.at_rest and not measured.arrived_packets:
                due_ns = now_ns + interval_ns
                self._gate.read(limit_id, now_ns)
                break
            tick = limiter.tick(measured, due_ns)
            self._gate.program(limit_id, tick.enforcement, tick.evict, due_ns)
            limiter.publish((), due_ns)
            due_ns += interval_ns
        self._due_ns[limit_id] = due_ns

    def results(self) -> list[dict[str, Any]]:
        """What came of each limit, as JSON: rates in bits/s, sizes in bytes."""
        return [self._result(limit, self._watched.get(limit.id)) for limit in self._limits]

    def _result(self, limit: LimitSpec, watched: _Watched | None) -> dict[str, Any]:
        tally = watched.tally if watched else Tally(0)
        policy = limit.policy
        prefix = policy.flow if isinstance(policy.flow, SourcePrefix) else None
        names = ("arrived", "forwarded", "dropped", "marked")
        counted = {"packets": tally.packets, "bytes": tally.size}
        top = sorted(tally.flows.items(), key=lambda item: -item[1][1])[:TOP]
        forwarded = tally.size[1] or 1
        return {
            "limit": policy.name,
            "mode": policy.mode.value,
            "allocator": policy.allocator,
            "rate_bps": policy.rate * 8,
            "burst_bytes": policy.burst,
            **{
                f"{name}_{unit}": count
                for unit, counts in counted.items()
                for name, count in zip(names, counts, strict=True)
            },
            "flows": [
                {
                    "flow": flow_name(flow, prefix) if isinstance(flow, FlowKey) else str(flow),
                    "arrived_bytes": sizes[0],
                    "forwarded_bytes": sizes[1],
                    "share": sizes[1] / forwarded,
                }
                for flow, sizes in top
            ],
            "worst_second": tally.worst
            and {
                "at_s": tally.worst[0],
                **{f"{name}_bytes": size for name, size in tally.worst[1]._asdict().items()},
            },
            "suggestion": _suggestion(policy, tally.profile),
            "span_s": tally.span_s,
            "spans": [list(span) for span in tally.spans],
        }

    @property
    def seconds(self) -> float:
        """The time from the first packet to the last."""
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
