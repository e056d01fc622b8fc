"""The datapath of requests: the decision on each, by the policers that packets have.

A request falls under a list of limits. All are checked, then all are charged, or none is. The
verdicts are those on packets (drld.police.policer); callers are flows, so `fair` holds each to its
fair share. A caller is known by a hash under a secret of this daemon, so nobody can choose callers
that share a slot of the sample.

A request that costs more than a limit's burst could never pass one bucket. It is refused for this
reason alone, and is no demand: otherwise one request could claim the share of a million.

It is pure: the time and the source of random drops are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from random import Random

from drld.model import Enforcement, FlowId, FlowKey
from drld.police.policer import Policer
from drld.police.policer_set import PolicerSet
from drld.policy import Mode
from drld.requests.matcher import Matcher
from drld.requests.model import Answer, Request, Standing
from drld.requests.spec import REQUESTS
from drld.spec import LimitSpec
from drld.units import human_amount


class RequestDatapath(PolicerSet):
    """Counts and decides requests (`drld.police.datapath.Datapath`)."""

    name = "requests"

    def __init__(self, rng: Random, secret: bytes) -> None:
        """`rng` decides random drops; `secret`, 16 to 64 bytes, hides which callers are alike."""
        super().__init__()
        self._rng = rng
        self._secret = secret
        self._matcher = Matcher(())
        self._counts = dict.fromkeys(("requests_unmatched", "requests_oversized"), 0)

    # What every datapath does

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath.attach`; nothing of the host is touched, so it is never refused."""
        pairs = list(limits)
        self.replace(pairs, now_ns)
        self._matcher = Matcher(limit for limit, _ in pairs)

    def snapshot(self, limit_id: int, flow: FlowKey) -> Policer:  # noqa: ARG002 -- it has all flows
        """See `Datapath.snapshot`."""
        return self.copy_of(limit_id)

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath.set_share`; does nothing, as without the daemon nobody answers."""

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`; the records are in force since `program`."""

    def counters(self) -> Mapping[str, int]:
        """Requests that fell under no limit, and requests above a burst."""
        return self._counts

    def detach(self) -> None:
        """See `Datapath.detach`."""
        self.attach((), 0)

    # What only this datapath does

    def decide(self, request: Request, now_ns: int) -> Answer:
        """Decide about a request, and charge it to all its limits if it is admitted."""
        under = [
            (limit, _amount(limit, request), self._policers[limit.id])
            for limit in self._matcher.limits(request.namespace, request.descriptor)
        ]
        if not under:
            self._counts["requests_unmatched"] += 1
            return Answer(admitted=True, standings=(), refused=None, reason=None)
        for limit, amount, _ in under:
            if amount > limit.policy.burst and limit.policy.mode is Mode.ENFORCE:
                self._counts["requests_oversized"] += 1
                never = Standing(limit, amount, None, None, None)
                return Answer(admitted=False, standings=(), refused=never, reason=_large(limit))
        under = [it for it in under if it[1] <= it[0].policy.burst]
        flow = self._flow(request.caller)
        check = self._police if request.cost else self._try
        refused_by = check(under, flow, now_ns)
        standings = [self._standing(*it, flow, now_ns, admitted=refused_by is None) for it in under]
        if refused_by is None:
            return Answer(admitted=True, standings=standings, refused=None, reason=None)
        refused = next(it for it in standings if it.limit is refused_by)
        reason = f"above the limit {refused_by.name}"
        return Answer(admitted=False, standings=standings, refused=refused, reason=reason)

    def _police(
        self, under: Iterable[tuple[LimitSpec, int, Policer]], flow: FlowId, now_ns: int
    ) -> LimitSpec | None:
        """Do as `drld.police.policer.police`, where each limit has its own amount; return the
        limit that refuses."""
        for _, amount, policer in under:
            policer.arrive(flow, amount)
        passing = []
        for limit, amount, policer in under:
            if not policer.refuses(amount, now_ns, self._rng):
                passing.append((policer, amount))
            elif not policer.shadow:
                return limit
        for policer, amount in passing:
            policer.forward(amount)
        return None

    @staticmethod
    def _try(
        under: Iterable[tuple[LimitSpec, int, Policer]], flow: FlowId, now_ns: int
    ) -> LimitSpec | None:
        """The limit that would refuse; nothing is counted or charged."""
        for limit, amount, policer in under:
            if not policer.shadow and policer.wait_ns(flow, amount, now_ns) != 0:
                return limit
        return None

    def _standing(
        self,
        limit: LimitSpec,
        amount: int,
        policer: Policer,
        flow: FlowId,
        now_ns: int,
        *,
        admitted: bool,
    ) -> Standing:
        bucket = policer.bucket
        bucket.settle(now_ns)
        wait_ns = 0 if admitted or policer.shadow else policer.wait_ns(flow, amount, now_ns)
        if (depth := bucket.depth) is None:
            return Standing(limit, amount, None, None, wait_ns)
        return Standing(limit, amount, max(bucket.tokens, 0), bucket.wait_ns(depth, 0), wait_ns)

    def _flow(self, caller: str) -> FlowId:
        """The flow of a caller."""
        hashed = blake2b(caller.encode(), key=self._secret, digest_size=8)
        return int.from_bytes(hashed.digest(), "big")


def _amount(limit: LimitSpec, request: Request) -> int:
    """What a request costs under a limit, tokens; a question about its passing asks for one."""
    unit, cost = limit.policy.unit, max(request.cost, 1)
    if unit != REQUESTS and request.size is not None:
        return request.size
    return cost * unit.item


def _large(limit: LimitSpec) -> str:
    unit = limit.policy.unit
    burst = human_amount(unit.shown_amount(limit.policy.burst), unit.name)
    return f"its cost is above the burst of the limit {limit.name}, {burst}: it never passes"
