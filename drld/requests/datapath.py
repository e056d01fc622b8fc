"""The datapath of requests: the decision on each, by the policers that packets have.

A request falls under a list of limits. All are checked, then all are charged, or none is. The
verdicts are those on packets (drld.police.policer); callers are flows, so `fair` holds each to its
fair share. A caller is known by a hash under a secret of this daemon, so nobody can choose callers
that share a slot of the sample.

A request that costs more than a limit's burst could never pass one bucket. It is refused for this
reason alone, and is no demand: otherwise one request could claim the share of a million.

A request that names the least cost of use to it (`at_least`) gets the most, up to its cost, that no
limit refuses. It counts as two: what it gets is admitted, and the rest, as far as the bursts allow
it at all, is refused by the limit that is short.

A charge is for what has been carried out already, as its cost is known at the end alone. It always
passes, and what a bucket lacks is debt, which time alone pays: requests are refused until then. The
debt is bounded, so that no single charge blocks a limit for years: by what the limit admits in a
day, the longest period of a rate, or by its burst if that is more.

Under a limit with a bucket for each key, a request has the policer of its key
(`drld.requests.key_policer`), and the rate and burst of that key.

It is pure: the time and the source of random drops are given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import TypeAlias

from drld.allocators.base import bucket
from drld.estimate.flows import FlowSample
from drld.model import NS_PER_S, Enforcement, FlowId, FlowKey
from drld.police.policer import Policer
from drld.police.policer_set import PolicerSet
from drld.police.token_bucket import TokenBucket
from drld.policy import Mode, Policy
from drld.requests.descriptor import Descriptor
from drld.requests.key_policer import KeyPolicer
from drld.requests.keyed_limit import Terms
from drld.requests.keyed_limits import KeyedLimits
from drld.requests.keys import SEPARATOR
from drld.requests.matcher import Matcher
from drld.requests.model import Answer, Request, Standing
from drld.requests.shape import Shape
from drld.requests.spec import REQUESTS, match_of
from drld.spec import LimitSpec
from drld.units import human_amount

DEBT_S = 86_400
"""A charge leaves at most the debt that a limit's rate pays in this time, or its burst."""

_MAX_FLOWS = 4096
"""Some 1 MB, with the longest callers."""
CALLER = 0
"""The flow of the caller that a snapshot is about."""

_Held: TypeAlias = tuple[LimitSpec, Policer | KeyPolicer]
"""A limit that a request falls under, and its policer."""
_Under: TypeAlias = tuple[LimitSpec, int, Policer | KeyPolicer]
"""A limit, what a request costs under it, tokens, and its policer."""
Shaped: TypeAlias = tuple[LimitSpec, Policer, tuple[int, ...]]
"""A limit, its policer, and the places of a key's values among those of a shape; none: no keys."""


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
            secret: 16 to 64 bytes; hides which callers are alike.
            policer: makes the policer of a limit from its policy, its first record and the time,
                ns.
            keyed: the limits with a bucket for each key; by default those of a limiter alone.
        """
        super().__init__(policer)
        self.keyed = keyed or KeyedLimits(Terms(0, secret, NS_PER_S, 1), rng)
        self._rng = rng
        self._keyed = blake2b(key=secret, digest_size=8)
        self._flows: dict[str, FlowId] = {}
        """Of callers that came lately."""
        self._matcher: Matcher[tuple[LimitSpec, Policer]] = Matcher(())
        self._now_ns = 0
        """Of the last tick."""
        self._counts = dict.fromkeys(("requests_unmatched", "requests_oversized"), 0)
        self.generation = 0
        """How often `attach` was called: shapes of an earlier one are of no use."""
        self.limits: Mapping[int, LimitSpec] = {}
        """By their ids."""
        self.shares: dict[int, Enforcement] = {}
        """What this host may admit without any word of the fleet, by the ids of limits."""

    # What every datapath does

    def attach(self, limits: Iterable[tuple[LimitSpec, Enforcement]], now_ns: int) -> None:
        """See `Datapath.attach`; nothing of the host is touched, so it is never refused."""
        pairs = list(limits)
        self.replace(pairs, now_ns)
        self._matcher = Matcher((limit, (limit, self._policers[limit.id])) for limit, _ in pairs)
        self.keyed.replace((limit for limit, _ in pairs if limit.policy.keyed), now_ns)
        self.generation += 1
        self.limits = {limit.id: limit for limit, _ in pairs}
        first = {limit.id: enforcement for limit, enforcement in pairs}
        self.shares = {**first, **{key: it for key, it in self.shares.items() if key in first}}

    def snapshot(self, limit_id: int, flow: FlowKey | Request) -> Policer:
        """See `Datapath.snapshot`: the flow is that of a request, whose bucket is that of `CALLER`;
        under a limit with a bucket for each key, the bucket is that of its key."""
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
        """See `Datapath.set_share`; clients enforce it, as without the daemon nobody answers."""
        self.shares[limit_id] = share

    def flush(self, now_ns: int) -> None:
        """See `Datapath.flush`; the records are in force since `program`."""
        self._now_ns = now_ns

    def counters(self) -> Mapping[str, int]:
        """Requests that fell under no limit, and requests above a burst."""
        return self._counts

    def detach(self) -> None:
        """See `Datapath.detach`."""
        self.attach((), 0)

    # What only this datapath does

    def decide(self, request: Request, now_ns: int) -> Answer:
        """Decide about a request, and charge it to all its limits if it is admitted."""
        limits = self._held(request)
        if not limits:
            self._counts["requests_unmatched"] += 1
            return Answer(True, (), None, None, request.cost)
        flow = self._flow(request.caller)
        if request.charge:
            return self._charge(limits, request, flow, now_ns)
        short, rest = None, request
        if request.at_least is not None:
            request, short, rest = self._largest(limits, request, flow, now_ns)
        under = []
        for limit, policer in limits:
            amount = amount_under(limit, request)
            if amount <= limit.policy.burst:
                under.append((limit, amount, policer))
            elif limit.policy.mode is Mode.ENFORCE:
                self._counts["requests_oversized"] += 1
                never = Standing(limit, amount, None, None, None)
                return Answer(admitted=False, standings=(), refused=never, reason=too_large(limit))
        check = self._police if request.cost else self._try
        refused_by = check(under, flow, now_ns)
        if refused_by is None and short is not None:
            self._fall_short(limits, rest, flow, short)
        return self._answer(under, request.cost, refused_by, flow, now_ns)

    def _answer(
        self,
        under: Sequence[_Under],
        cost: int,
        refused_by: LimitSpec | None,
        flow: FlowId,
        now_ns: int,
    ) -> Answer:
        """The answer to a request of this cost that has just been decided."""
        standings = [self._standing(*it, flow, now_ns, admitted=refused_by is None) for it in under]
        if refused_by is None:
            return Answer(True, standings, None, None, cost)
        refused = next(it for it in standings if it.limit is refused_by)
        return Answer(False, standings, refused, _above(refused_by))

    def decide_all(self, requests: Sequence[Request], now_ns: int) -> list[Answer]:
        """Decide about requests of one caller that pass together, or not at all.

        A bucket that several of them fall under decides about the sum of their costs, as about one
        request. The answer is no to those from which on a limit is short, and nothing is charged
        then. Either all of them are charges, or none is; none has `at_least`.
        """
        if len(requests) == 1 or requests[0].charge:
            return [self.decide(request, now_ns) for request in requests]
        flow = self._flow(requests[0].caller)
        all_under: list[list[_Under]] = []
        charged: dict[tuple[int, int | None], _Under] = {}
        peeked: list[_Under] = []
        for request in requests:
            under = []
            for limit, policer in self._held(request):
                bucket = limit.id, policer.key if isinstance(policer, KeyPolicer) else None
                before = charged[bucket][1] if bucket in charged else 0
                it = limit, before + amount_under(limit, request), policer
                if it[1] > limit.policy.burst and limit.policy.mode is not Mode.ENFORCE:
                    continue
                under.append(it)
                if request.cost:
                    charged[bucket] = it
                else:
                    peeked.append(it)
            all_under.append(under)
        self._counts["requests_unmatched"] += sum(not under for under in all_under)
        if any(amount > limit.policy.burst for under in all_under for limit, amount, _ in under):
            self._counts["requests_oversized"] += 1
            return [self._together(under, None, flow, now_ns) for under in all_under]
        refused_by = self._try(peeked, flow, now_ns) or self._police(charged.values(), flow, now_ns)
        if refused_by is None:
            standings = [
                [self._standing(*it, flow, now_ns, admitted=True) for it in under]
                for under in all_under
            ]
            return [
                Answer(True, its, None, None, request.cost)
                for request, its in zip(requests, standings, strict=True)
            ]
        answers = [self._together(under, None, flow, now_ns) for under in all_under]
        if all(answer.admitted for answer in answers):  # Dropped at random.
            answers = [self._together(under, refused_by, flow, now_ns) for under in all_under]
        return answers

    def _together(
        self, under: Sequence[_Under], refused_by: LimitSpec | None, flow: FlowId, now_ns: int
    ) -> Answer:
        """One of the answers to requests that are not admitted together: no is to those alone that
        a limit is short for, or that `refused_by` dropped."""
        for limit, amount, _ in under:
            if amount > limit.policy.burst:
                never = Standing(limit, amount, None, None, None)
                return Answer(admitted=False, standings=(), refused=never, reason=too_large(limit))
        standings = [self._standing(*it, flow, now_ns, admitted=False) for it in under]
        for it in standings:
            if it.wait_ns != 0 or it.limit is refused_by:
                return Answer(False, standings, it, _above(it.limit))
        return Answer(True, standings, None, None, 0)

    def _held(self, request: Request) -> list[_Held]:
        """The limits that a request falls under, and their policers."""
        descriptor = request.descriptor
        found: list[_Held] = []
        for limit, policer in self._matcher.find(request.namespace, descriptor):
            per = match_of(limit).per
            if per:
                key = SEPARATOR.join([descriptor[name].encode() for name in per])
                of_key = self.keyed.policer(limit.policy.id, key, policer)
                found.append((of_key.limit, of_key))
            else:
                found.append((limit, policer))
        return found

    @staticmethod
    def _under(limits: Iterable[_Held], request: Request) -> list[_Under]:
        """What a request costs under each limit that checks it, and their policers."""
        under = [(it, amount_under(it, request), policer) for it, policer in limits]
        return [it for it in under if it[1] <= it[0].policy.burst]

    def _largest(
        self, limits: Sequence[_Held], request: Request, flow: FlowId, now_ns: int
    ) -> tuple[Request, LimitSpec | None, Request]:
        """The largest part of a request, at least the least of use, that no limit would refuse.

        Returns:
            The part; the limit that is short of a larger one, if the bursts allow one; the rest.
        """
        least = request.at_least or request.cost

        def largest(most: int, refuser: Callable[[Request], LimitSpec | None]) -> int:
            low = least
            while low < most:
                middle = (low + most + 1) // 2
                if refuser(request.part(middle)) is None:
                    low = middle
                else:
                    most = middle - 1
            return low

        def refuser(part: Request) -> LimitSpec | None:
            return self._try(self._under(limits, part), flow, now_ns)

        most = largest(request.cost, partial(oversized, [it for it, _ in limits]))
        cost = largest(most, refuser)
        short = refuser(request.part(cost + 1)) if cost < most else None
        part, whole = request.part(cost), request.part(most)
        size = None if whole.size is None or part.size is None else whole.size - part.size
        return part, short, whole._replace(cost=most - cost, size=size)

    def _fall_short(
        self, limits: Iterable[_Held], rest: Request, flow: FlowId, short: LimitSpec
    ) -> None:
        """Count the rest of a request that is admitted in part as one that `short` refuses."""
        for limit, policer in limits:
            amount = amount_under(limit, rest)
            if limit is short:
                policer.fall_short(flow, amount)
            else:
                policer.arrive(flow, amount)

    def _charge(
        self, limits: Iterable[_Held], request: Request, flow: FlowId, now_ns: int
    ) -> Answer:
        """Charge a request that has been carried out to all its limits."""
        standings = []
        for limit, policer in limits:
            policy = limit.policy
            left = max(policer.tokens(now_ns) + most_debt(policy), 0)
            if amount := min(amount_under(limit, request), left):
                policer.charge(flow, amount, now_ns)
            standings.append(self._standing(limit, amount, policer, flow, now_ns, admitted=True))
        return Answer(True, standings, None, None, request.cost)

    def _police(self, under: Collection[_Under], flow: FlowId, now_ns: int) -> LimitSpec | None:
        """Do as `drld.police.policer.police`, where each limit has its own amount; return the
        limit that refuses."""
        if len(under) == 1:
            ((limit, amount, policer),) = under
            policer.arrive(flow, amount)
            if not policer.refuses(amount, now_ns, self._rng):
                policer.forward(amount)
            elif not policer.shadow:
                return limit
            return None
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
    def _try(under: Iterable[_Under], flow: FlowId, now_ns: int) -> LimitSpec | None:
        """The limit that would refuse; nothing is counted or charged."""
        for limit, amount, policer in under:
            if not policer.shadow and policer.wait_ns(flow, amount, now_ns) != 0:
                return limit
        return None

    def _standing(
        self,
        limit: LimitSpec,
        amount: int,
        policer: Policer | KeyPolicer,
        flow: FlowId,
        now_ns: int,
        *,
        admitted: bool,
    ) -> Standing:
        wait_ns = 0 if admitted or policer.shadow else policer.wait_ns(flow, amount, now_ns)
        if (fill := policer.fill(now_ns)) is None:
            return Standing(limit, amount, None, None, wait_ns)
        tokens, full_ns = fill
        return Standing(limit, amount, tokens if tokens > 0 else 0, full_ns, wait_ns)

    def _flow(self, caller: str) -> FlowId:
        """The flow of a caller."""
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
        """What this host may admit without any word of the fleet; of a limit with keys, of each."""
        if not limit.policy.keyed:
            return self.shares[limit.id]
        members = self.keyed.members
        return bucket(limit.policy.rate // members, limit.policy.burst / members)

    # Requests with the same names

    def shape(self, namespace: str, names: Sequence[str]) -> Shape[Shaped]:
        """What requests of this namespace with these names have in common, until `generation`
        changes."""

        def find(descriptor: Descriptor) -> list[Shaped]:
            return [
                (limit, policer, tuple(names.index(name) for name in match_of(limit).per))
                for limit, policer in self._matcher.find(namespace, descriptor)
            ]

        return Shape(names, self._matcher.named(namespace), find)

    def decide_shaped(
        self, shape: Shape[Shaped], values: Sequence[bytes], caller: str, cost: int, now_ns: int
    ) -> Answer | Standing | None:
        """Do as `decide` for a request of a shape, without a size or an option.

        Args:
            shape: made since `generation` changed.
            values: of the descriptor, in the order of the shape's names; UTF-8.
            caller: as in a request.
            cost: at least 1.
            now_ns: the time, ns.

        Returns:
            The answer. A standing in its place: the request is admitted, and this is its only one.
            None: nothing is decided, as a limit is never enough for this cost; `decide` says so.
        """
        under: list[_Under] = []
        for limit, policer, places in shape.find(values):
            held: _Held = limit, policer
            if places:
                key = SEPARATOR.join([values[place] for place in places])
                of_key = self.keyed.policer(limit.policy.id, key, policer)
                held = of_key.limit, of_key
            policy = held[0].policy
            amount = cost * policy.unit.item
            if amount > policy.burst:
                return None
            under.append((held[0], amount, held[1]))
        if not under:
            self._counts["requests_unmatched"] += 1
            return Answer(True, (), None, None, cost)
        flow = self._flow(caller)
        refused_by = self._police(under, flow, now_ns)
        if refused_by is None and len(under) == 1:
            limit, amount, checked = under[0]
            return self._standing(limit, amount, checked, flow, now_ns, admitted=True)
        return self._answer(under, cost, refused_by, flow, now_ns)


def amount_under(limit: LimitSpec, request: Request) -> int:
    """What a request costs under a limit, tokens; a question about its passing asks for one."""
    unit, cost = limit.policy.unit, request.cost if request.charge else max(request.cost, 1)
    if request.size is not None and unit != REQUESTS:
        return request.size
    return cost * unit.item


def most_debt(policy: Policy) -> int:
    """What the bucket of a limit may lack after a charge, tokens."""
    if policy.keyed is not None and policy.keyed.bucket == "queue":
        # It keeps an element for each token: a day's would stop the daemon for minutes.
        return policy.burst
    return max(policy.rate * DEBT_S, policy.burst)


def oversized(limits: Iterable[LimitSpec], request: Request) -> LimitSpec | None:
    """The first limit that could never admit a request, as its burst is smaller."""
    for limit in limits:
        if amount_under(limit, request) > limit.policy.burst and limit.policy.mode is Mode.ENFORCE:
            return limit
    return None


def _above(limit: LimitSpec) -> str:
    """Why a limit refuses a request, for people."""
    return f"above the limit {limit.name}"


def too_large(limit: LimitSpec) -> str:
    """Why a limit never admits a request, for people."""
    unit = limit.policy.unit
    burst = human_amount(unit.shown_amount(limit.policy.burst), unit.name)
    return f"its cost is above the burst of the limit {limit.name}, {burst}: it never passes"
