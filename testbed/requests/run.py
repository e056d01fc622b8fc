"""One run of a case: from its definition to its record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from testbed.requests.case import NS_PER_S, Case, case_of
from testbed.requests.fleet import MS, START_NS, Fleet
from testbed.requests.memory import resident, size
from testbed.requests.oracle import TokenBucket
from testbed.requests.variants import VARIANTS
from testbed.requests.workload import Request, requests
from testbed.sim.network import Conditions

_STEP_MS = 1000
"""Resolution of curves."""
_LONGEST_MS = 3_600_000
"""A fleet that has not settled so long after the last request never will."""


def carry_out(definition: Mapping[str, Any], name: str, repetition: int) -> dict[str, Any]:
    """Carry out one run; the same arguments give the same record."""
    case = case_of(definition)
    data = requests(
        case.data, repetition, case.capacity, case.rate_s, nodes=case.nodes, duty=case.duty
    )
    run = Run(case, name, repetition)
    run.carry_out(data)
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
        self.fleet = Fleet(
            case.nodes,
            lambda origin, peers: variant.replica(
                case.policy, origin, peers, interval_ns, repeat_ns
            ),
            variant.form, interval_ns, conditions, seed=seed,
            offsets_ns={0: case.skewed_s * NS_PER_S},
        )  # fmt: skip
        self._central: dict[int, TokenBucket] = {}
        """What one bucket would have admitted, by user."""
        self._true: dict[int, TokenBucket] = {}
        """One bucket from which all that was admitted is taken, by user."""
        self.admitted = self.central_admitted = 0
        self.rejected: list[int] = []
        """Times, ms."""
        self.central_rejected: list[int] = []
        self.decisions: list[bool] = []
        self.excess = self.shortfall = Fraction(0)
        """The largest, tokens: what the true bucket lacked, and what it had beside a token that
        was refused."""
        self._late_admitted = self._late_central = 0
        """In the second half."""
        self._memory: list[tuple[int, int, int]] = []
        self._resident = 0
        self._end_ms = 0
        self._settled_ms = 0

    def carry_out(self, data: list[Request]) -> None:
        """Send the requests, and wait until nobody has anything to tell."""
        self._end_ms = data[-1].at_ms
        sampled = 0
        for request in data:
            while sampled <= request.at_ms:
                self._step(sampled)
                sampled += _STEP_MS
            self._advance(request.at_ms)
            self._take(request)
        self._resident = resident(self.fleet.replicas)
        while not self.fleet.settled and sampled < self._end_ms + _LONGEST_MS:
            self._step(sampled)
            sampled += _STEP_MS
        self._settled_ms = sampled

    def _step(self, at_ms: int) -> None:
        self._advance(at_ms)
        self._memory.append(size(self.fleet.replicas, self._variant.form))
        if at_ms % 60_000 == 0:
            for number, replica in enumerate(self.fleet.replicas):
                replica.collect(self.fleet.local_ns(number))

    def _advance(self, at_ms: int) -> None:
        cut_ms, heal_ms = self._case.cut
        for when_ms in (cut_ms, heal_ms):
            if (
                heal_ms
                and self.fleet.clock.now_ns < START_NS + when_ms * MS <= START_NS + at_ms * MS
            ):
                self.fleet.clock.run(START_NS + when_ms * MS)
                self._cut(when_ms == cut_ms)
        self.fleet.clock.run(START_NS + at_ms * MS)

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
            true.force(at_ms)
            self.excess = max(self.excess, -true.tokens)
        else:
            self.rejected.append(at_ms)
            true.refill(at_ms)
            self.shortfall = max(self.shortfall, true.tokens - 1)

    def record(self) -> dict[str, Any]:
        """What was measured."""
        fleet = self.fleet
        steps = range(0, self._end_ms + _STEP_MS, _STEP_MS)
        ours, central = (
            _cumulative(times, len(steps)) for times in (self.rejected, self.central_rejected)
        )
        sent = [0] * (self._settled_ms // _STEP_MS + 1)
        for when_ns, length in fleet.log:
            sent[min((when_ns - START_NS) // MS // _STEP_MS, len(sent) - 1)] += length
        copied = [size[1] for size in self._memory]
        return {
            "requests": len(self.decisions),
            "rejected": len(self.rejected),
            "central": len(self.central_rejected),
            "area": sum(ours), "central_area": sum(central),
            "excess": float(self.excess), "shortfall": float(self.shortfall),
            "admitted": self.admitted, "central_admitted": self.central_admitted,
            "late_admitted": self._late_admitted, "late_central": self._late_central,
            "bytes": fleet.bytes_sent, "messages": fleet.messages,
            "converged_s": (fleet.last_sent_ns - START_NS) / NS_PER_S,
            "after_s": (fleet.last_sent_ns - START_NS) / NS_PER_S - self._end_ms / 1000,
            "memory_peak": max(copied), "memory_area": sum(copied),
            "shared_area": sum(size[2] for size in self._memory),
            "local_area": sum(size[0] for size in self._memory),
            "resident": self._resident,
            "late_tokens": sum(replica.buckets.late for replica in fleet.replicas),
            "users": len(self._central),
            "decisions": hashlib.blake2b(bytes(self.decisions), digest_size=8).hexdigest(),
            "curve": list(zip(ours, central, strict=True)),
            "sent": sent, "memory": copied,
        }  # fmt: skip


def _cumulative(times_ms: list[int], steps: int) -> list[int]:
    """How many came up to the end of each step."""
    counts = [0] * steps
    for at_ms in times_ms:
        counts[at_ms // _STEP_MS] += 1
    total, found = 0, []
    for count in counts:
        total += count
        found.append(total)
    return found
