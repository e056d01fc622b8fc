"""The datapath of requests: which limits a request falls under, and the decision on it.

Callers are flows, so `fair` holds each caller to its fair share. A caller is known by a hash under
a secret of this daemon, so no client can choose callers that share a slot of the sample. Under a
limit with a bucket for each key, a request has the policer of its key
(`drld.requests.key_policer`), and the rate and burst of that key.

It is pure: the time and the source of random drops are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from typing import TypeAlias

from drld.allocators.base import bucket
from drld.estimate.flows import FlowSample
from drld.model import NS_PER_S, Enforcement, FlowId, FlowKey
from drld.police.policer import Policer
from drld.police.policer_set import PolicerSet
from drld.police.token_bucket import TokenBucket
from drld.policy import Policy
from drld.requests.decision import Decider, Held, Under
from drld.requests.descriptor import Descriptor
from drld.requests.keyed_limit import Terms
from drld.requests.keyed_limits import KeyedLimits
from drld.requests.keys import SEPARATOR
from drld.requests.matcher import Matcher
from drld.requests.model import Answer, Request
from drld.requests.shape import Shape
from drld.requests.spec import match_of
from drld.spec import LimitSpec

_MAX_FLOWS = 4096
"""Callers whose flows are remembered: about 1 MB with the longest names."""
CALLER = 0
"""The flow of the caller that a snapshot is about."""

Shaped: TypeAlias = tuple[LimitSpec, Policer, tuple[int, ...], int]
"""A limit, its policer, the places of its key's values in a shape, and the tokens of a request.

Without places, the limit has no keys.
"""


class RequestDatapath(PolicerSet):
    """Counts and decides requests (`drld.police.datapath.Datapath`)."""

    name = "requests"

    def __init__(
        self,
        rng: Random,
        secret: bytes,
        policer: Callable[[Policy, Enforcement, int], Policer] = Policer,
        keyed: KeyedLimits | None = None,
    ) -> None:
        """Decide about requests.

        Args:
            rng: decides random drops.
            secret: 16 to 64 bytes; hides which callers have the same flow.
            policer: makes the policer of a limit from its policy, its first record and the time,
                ns.
            keyed: the limits with a bucket for each key; by default those of a limiter alone.
        """
        super().__init__(policer)
        self.keyed = keyed or KeyedLimits(Terms(0, secret, NS_PER_S, 1), rng)
        self._decider = Decider(rng)
        self._keyed = blake2b(key=secret, digest_size=8)
        self._flows: dict[str, FlowId] = {}
        """The flows of recent callers."""
        self._matcher: Matcher[tuple[LimitSpec, Policer]] = Matcher(())
        self._now_ns = 0
        """The time of the last tick, ns."""
        self.generation = 0
        """The number of calls of `attach`: a shape is of no use after the next call."""
        self.limits: Mapping[int, LimitSpec] = {}
        """The limits by id."""
        self.shares: dict[int, Enforcement] = {}
        """What this host may admit without its peers, by the id of the limit."""

    # The methods of every datapath

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath.attach`; it changes nothing on the host, so it is never refused."""
        pairs = list(limits)
        self.replace(pairs, now_ns)
        self._matcher = Matcher((limit, (limit, self._policers[limit.id])) for limit, _ in pairs)
        self.keyed.replace((limit for limit, _ in pairs if limit.policy.keyed), now_ns)
        self.generation += 1
        self.limits = {limit.id: limit for limit, _ in pairs}
        first = {limit.id: enforcement for limit, enforcement in pairs}
        self.shares = {**first, **{key: it for key, it in self.shares.items() if key in first}}

    def snapshot(self, limit_id: int, flow: FlowKey | Request) -> Policer:
        """See `Datapath.snapshot`; the flow is a request, and its caller has the flow `CALLER`.

        Under a limit with a bucket for each key, the bucket is that of the request's key.
        """
        assert isinstance(flow, Request)
        policer = self.copy_of(limit_id)
        if (keyed := self.keyed.limits.get(limit_id)) is not None:
            values = [flow.descriptor[name].encode() for name in match_of(keyed.limit).per]
            of_key = self.keyed.policer(limit_id, SEPARATOR.join(values), policer)
            policy = of_key.limit.policy
            depth = None if keyed.paused else policy.burst
            record = Enforcement(fill_rate=policy.rate, depth=depth)
            tokens = of_key.tokens(self._now_ns) * NS_PER_S
            policer.bucket = TokenBucket(record, self._now_ns, tokens)
            return policer
        slot = policer.sample.peek(self._flow(flow.caller))
        policer.sample = FlowSample(0 if slot is None else 1)
        if slot is not None and (own := policer.sample.observe(CALLER, 0)) is not None:
            own.due_ns = slot.due_ns
        return policer

    def set_share(self, limit_id: int, share: Enforcement) -> None:
        """See `Datapath.set_share`; clients enforce it, since a dead daemon answers nothing."""
        self.shares[limit_id] = share

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`; the records are in force since `program`."""
        self._now_ns = now_ns

    def counters(self) -> Mapping[str, int]:
        """See `drld.requests.decision.COUNTERS`."""
        return self._decider.counts

    def detach(self) -> None:
        """See `Datapath.detach`."""
        self.attach((), 0)

    # The methods of this datapath alone

    def decide(self, request: Request, now_ns: int) -> Answer:
        """Decide about a request, and charge it to all its limits if it is admitted."""
        held, flow = self._held(request), self._flow(request.caller)
        answer = self._decider.decide(held, request, flow, now_ns)
        if held:
            return answer
        return answer._replace(reason=self._matcher.uncovered(request.namespace))

    def decide_all(self, requests: Sequence[Request], now_ns: int) -> list[Answer]:
        """Decide about requests of one caller that pass together (`Decider.decide_all`)."""
        if len(requests) == 1 or requests[0].charge:
            return [self.decide(request, now_ns) for request in requests]
        flow = self._flow(requests[0].caller)
        return self._decider.decide_all(
            [self._held(request) for request in requests], requests, flow, now_ns
        )

    def ignore_overrides(self, number: int) -> None:
        """Count limits that clients have sent in requests: only the operator's limits apply."""
        self._decider.counts["requests_overridden"] += number

    def _held(self, request: Request) -> list[Held]:
        """Return the limits that a request falls under, and their policers."""
        descriptor = request.descriptor
        found: list[Held] = []
        for limit, policer in self._matcher.find(request.namespace, descriptor):
            per = match_of(limit).per
            if per:
                values = SEPARATOR.join([descriptor[name].encode() for name in per])
                found.append(self._of_key(limit, values, policer))
            else:
                found.append((limit, policer))
        return found

    def _of_key(self, limit: LimitSpec, values: bytes, counts: Policer) -> Held:
        of_key = self.keyed.policer(limit.policy.id, values, counts)
        return of_key.limit, of_key

    def _flow(self, caller: str) -> FlowId:
        """Return the flow of a caller."""
        flow = self._flows.get(caller)
        if flow is None:
            # A copy of a keyed state takes half the time of a new one.
            hashed = self._keyed.copy()
            hashed.update(caller.encode())
            flow = int.from_bytes(hashed.digest(), "big")
            if len(self._flows) >= _MAX_FLOWS:
                self._flows.clear()
            self._flows[caller] = flow
        return flow

    def share(self, limit: LimitSpec) -> Enforcement:
        """Return what this host may admit without its peers: of each key, if the limit has keys."""
        if not limit.policy.keyed:
            return self.shares[limit.id]
        members = self.keyed.members
        return bucket(limit.policy.rate // members, limit.policy.burst / members)

    # Requests with the same names

    def shape(self, namespace: str, names: Sequence[str]) -> Shape[Shaped]:
        """Return the shape of requests of this namespace with these names.

        It is of no use once `generation` has changed.
        """

        def find(descriptor: Descriptor) -> list[Shaped]:
            found: list[Shaped] = []
            for limit, policer in self._matcher.find(namespace, descriptor):
                places = tuple(names.index(name) for name in match_of(limit).per)
                found.append((limit, policer, places, limit.policy.unit.item))
            return found

        return Shape(names, self._matcher.named(namespace), find)

    def pass_first(
        self, shaped: Shaped, costs: Iterable[int], caller: str, now_ns: int
    ) -> list[tuple[int, int | None]]:
        """Admit the first of these requests, which come together, under one limit without keys.

        The answers are those of `decide_shaped`, which decides about the others.

        Args:
            shaped: the limit; its shape was made since `generation` changed.
            costs: the cost of each request, at least 1.
            caller: the caller of all.
            now_ns: the time, ns.

        Returns:
            For each request that is admitted, what `Policer.fill` would return after it.
        """
        limit, policer, _, item = shaped
        amounts = [cost * item for cost in costs]
        if max(amounts) > limit.policy.burst:
            return []
        return policer.pass_first(self._flow(caller), amounts, now_ns)

    def decide_shaped(
        self,
        held: Sequence[Shaped],
        values: Sequence[bytes],
        caller: str,
        cost: int,
        now_ns: int,
    ) -> Answer:
        """Do as `decide` for a request of a shape, without a size or an option.

        Args:
            held: the limits that the shape has found; it was made since `generation` changed.
            values: the descriptor's values in UTF-8, in the order of the shape's names.
            caller: the request's caller.
            cost: at least 1.
            now_ns: the time, ns.
        """
        under: list[Under] = []
        for limit, policer, places, item in held:
            if places:
                key = SEPARATOR.join([values[place] for place in places])
                its, of_key = self._of_key(limit, key, policer)
                under.append((its, cost * item, of_key))
            else:
                under.append((limit, cost * item, policer))
        return self._decider.settle(under, cost, self._flow(caller), now_ns)
