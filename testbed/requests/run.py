"""One run of a case: from its definition to its record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from drld.requests.buckets.delta_codec import Form
from testbed.harness.case import case_of
from testbed.requests.case import NS_PER_S, Case
from testbed.requests.fleet import MS, START_NS, Fleet, Wrong
from testbed.requests.knowledge import Knowledge
from testbed.requests.memory import Size, resident, size
from testbed.requests.oracle import TokenBucket
from testbed.requests.variants import VARIANTS
from testbed.requests.workload import Request, requests
from testbed.sim.network import Conditions

_STEPS = 300
"""Points of a curve, and samples of memory, in a long run; a short one has one a second."""
_COLLECT_MS = 60_000
"""Time between removals of drained buckets."""
_LONGEST_MS = 3_600_000
"""A fleet that has not settled so long after the last request never will."""


def carry_out(definition: Mapping[str, Any], name: str, repetition: int) -> dict[str, Any]:
    """Carry out one run; the same arguments give the same record."""
    case = case_of(Case, definition)
    run = Run(case, name, repetition)
    run.carry_out(requests(case, repetition))
    return {
        "allocator": name, "repetition": repetition, "datapath": "virtual time", **run.record(),
    }  # fmt: skip


class Run:
    """A run in the making."""

    def __init__(self, case: Case, name: str, seed: int) -> None:
        self._case = case
        self._variant = variant = VARIANTS[name]
        conditions = Conditions(case.delay_ms * MS, case.jitter_ms * MS, case.loss, case.duplicate)
        repeat_ns = case.repeat_ms * MS or None
        interval_ns = case.interval_ms * MS
        self.step_ms = 1000 * max(1, round(case.seconds / _STEPS))
        """Resolution of curves."""
        self.knowledge = None if variant.form is Form.QUEUE else Knowledge(case.nodes)
        self.fleet = Fleet(
            case.nodes,
            lambda origin, peers: variant.replica(
                case.policy, origin, peers, interval_ns, repeat_ns
            ),
            variant.form, interval_ns, conditions, seed=seed,
            wrong={0: Wrong(case.skewed_s * NS_PER_S, case.drift_ppm)},
            knowledge=self.knowledge,
        )  # fmt: skip
        self._central: dict[int, TokenBucket] = {}
        """What one bucket would have admitted, by user."""
        self._true: dict[int, TokenBucket] = {}
        """One bucket from which all that was admitted is taken, by user."""
        self.admitted = self.central_admitted = 0
        self.seen: list[int] = []
        """When each user came first, ms."""
        self.rejected: list[int] = []
        """Times, ms."""
        self.central_rejected: list[int] = []
        self.decisions: list[bool] = []
        self.excess = self.shortfall = Fraction(0)
        """The largest, tokens: what the true bucket lacked, and what it had beside a token that
        was refused."""
        self._late_admitted = self._late_central = 0
        """In the second half."""
        self._memory: list[Size] = []
        self._resident = 0
        self._end_ms = 0
        self._settled_ms = 0
        self._collected_ms = 0
        self.caught_up_ms: int | None = None
        """How long limiters that returned counted less than half of the tokens in use; None: to the
        end."""
        self._level = self._apart = 0.0
        self._left = 0

    def carry_out(self, data: list[Request]) -> None:
        """Send the requests, and wait until no limiter has news to tell."""
        self._end_ms = data[-1].at_ms
        sampled = 0
        for request in data:
            while sampled <= request.at_ms:
                self._step(sampled)
                sampled += self.step_ms
            self._advance(request.at_ms)
            self._take(request)
        self._resident = resident(self.fleet.replicas)
        while not self.fleet.settled and sampled < self._end_ms + _LONGEST_MS:
            self._step(sampled)
            sampled += self.step_ms
        self._settled_ms = sampled
        levels = [self._level_of(number, 0) for number in range(self._case.nodes)]
        self._level, self._apart = max(levels), max(levels) - min(levels)
        self._advance(sampled + 1000 * self._case.quiet_s)
        self._collect()
        self._left = sum(len(replica.buckets) for replica in self.fleet.replicas)

    def _level_of(self, number: int, user: int) -> float:
        """The tokens in use by which a limiter decides."""
        bucket = self.fleet.replicas[number].buckets.get(user)
        if bucket is None:
            return 0.0
        # A queue counts its elements, and may have the death of one whose elders it never had.
        queue = self._variant.form is Form.QUEUE
        return bucket.entries if queue else bucket.level(self.fleet.local_ns(number))

    def _step(self, at_ms: int) -> None:
        self._advance(at_ms)
        self._memory.append(size(self.fleet.replicas, self._variant.form))
        if at_ms >= self._collected_ms + _COLLECT_MS:
            self._collected_ms = at_ms
            self._collect()

    def _collect(self) -> None:
        if self._variant.collects:
            for number, replica in enumerate(self.fleet.replicas):
                replica.collect(self.fleet.local_ns(number))

    def _advance(self, at_ms: int) -> None:
        case = self._case
        cut_ms, heal_ms = case.cut
        for when_ms in (cut_ms, heal_ms, case.restart_ms):
            if when_ms and (
                self.fleet.clock.now_ns < START_NS + when_ms * MS <= START_NS + at_ms * MS
            ):
                self.fleet.clock.run(START_NS + when_ms * MS)
                if when_ms == case.restart_ms:
                    for number in self._returning:
                        self.fleet.restart(number, copies=case.copies)
                else:
                    self._cut(when_ms == cut_ms)
        self.fleet.clock.run(START_NS + at_ms * MS)
        if case.restart_ms and self.caught_up_ms is None and at_ms > case.restart_ms:
            least = self._level_of(case.nodes - 1, 0) / 2
            if all(self._level_of(number, 0) >= least for number in self._returning):
                self.caught_up_ms = at_ms - case.restart_ms

    @property
    def _returning(self) -> range:
        """A third of the limiters."""
        return range(self._case.nodes // 3)

    def _cut(self, begins: bool) -> None:
        names = self.fleet.names
        third = len(names) // 3
        if begins:
            self.fleet.network.partition(names[:third], names[third:])
        else:
            self.fleet.network.heal()

    def _take(self, request: Request) -> None:
        case, (at_ms, user, node) = self._case, request
        if user not in self._central:
            self.seen.append(at_ms)
            rate_s = Fraction(case.rate, case.per_s)
            self._central[user] = TokenBucket(case.capacity, rate_s)
            self._true[user] = TokenBucket(case.capacity, rate_s)
        late = at_ms * 2 > self._end_ms
        if self._central[user].take(at_ms):
            self.central_admitted += 1
            self._late_central += late
        else:
            self.central_rejected.append(at_ms)
        admitted = self.fleet.take(node, user)
        self.decisions.append(admitted)
        true = self._true[user]
        if admitted:
            self.admitted += 1
            self._late_admitted += late
            if self.knowledge is not None:
                self.knowledge.admitted(node, self.fleet.origin(node), user, at_ms)
            true.force(at_ms)
            self.excess = max(self.excess, -true.tokens)
        else:
            self.rejected.append(at_ms)
            true.refill(at_ms)
            self.shortfall = max(self.shortfall, true.tokens - 1)

    def record(self) -> dict[str, Any]:
        """What was measured."""
        fleet = self.fleet
        steps = self._end_ms // self.step_ms + 1
        ours, central, seen = (
            _cumulative(times, steps, self.step_ms)
            for times in (self.rejected, self.central_rejected, self.seen)
        )
        sent = [0] * (self._settled_ms // self.step_ms + 1)
        for when_ns, length in fleet.log:
            sent[min((when_ns - START_NS) // MS // self.step_ms, len(sent) - 1)] += length
        whole = [size.whole for size in self._memory]
        known = self.knowledge
        return {
            "requests": len(self.decisions),
            "rejected": len(self.rejected),
            "central": len(self.central_rejected),
            "area": sum(ours), "central_area": sum(central),
            "excess": float(self.excess), "shortfall": float(self.shortfall),
            "admitted": self.admitted, "central_admitted": self.central_admitted,
            "late_admitted": self._late_admitted, "late_central": self._late_central,
            "bytes": fleet.bytes_sent, "payload": fleet.payload_sent,
            "term_bytes": fleet.term_bytes, "messages": fleet.messages,
            "converged_s": (fleet.last_sent_ns - START_NS) / NS_PER_S,
            "after_s": (fleet.last_sent_ns - START_NS) / NS_PER_S - self._end_ms / 1000,
            "memory_peak": max(whole), "memory_area": sum(whole),
            "erlang_area": sum(size.erlang for size in self._memory),
            "local_area": sum(size.local for size in self._memory),
            "resident": self._resident,
            "late_tokens": sum(replica.buckets.late for replica in fleet.replicas),
            "users": len(self._central),
            "unknown": None if known is None else known.unknown,
            "unknown_s": None if known is None else known.age_ms / 1000,
            "level": self._level, "apart": self._apart, "left": self._left,
            "caught_up_s": None if self.caught_up_ms is None else self.caught_up_ms / 1000,
            "decisions": hashlib.blake2b(bytes(self.decisions), digest_size=8).hexdigest(),
            "curve": list(zip(ours, central, strict=True)),
            "step_s": self.step_ms / 1000, "seen": seen, "sent": sent, "memory": whole,
        }  # fmt: skip


def _cumulative(times_ms: list[int], steps: int, step_ms: int) -> list[int]:
    """How many came up to the end of each step."""
    counts = [0] * steps
    for at_ms in times_ms:
        counts[at_ms // step_ms] += 1
    total, found = 0, []
    for count in counts:
        total += count
        found.append(total)
    return found
